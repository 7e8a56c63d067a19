"""Plans against hand arithmetic for Llama-3-8B, and against what a format says for any shape."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from worker.kv.format import NAMES, KVShape, by_name
from worker.plan import Memory, plan

GIB = 2**30
LLAMA_3_8B = KVShape(layers=32, kv_heads=8, head_dim=128, block_size=16)
WEIGHTS = 8_030_261_248 * 2


@pytest.mark.parametrize(
    ("name", "row_bits"),
    [
        ("none", 128 * 16),
        ("fp8", 128 * 8 + 32),
        ("int8", 128 * 8 + 32),
        ("int4", 128 * 4 + 4 * (16 + 16)),
        ("k8v4", ((128 * 8 + 32) + (128 * 4 + 4 * (16 + 16))) / 2),
    ],
)
def test_llama_3_8b_in_80_gib(name: str, row_bits: float) -> None:
    memory = Memory(80 * GIB, WEIGHTS, reserve=8 * GIB)
    assert memory.kv == 85_899_345_920 - 16_060_522_496 - 8_589_934_592
    (fit,) = plan(memory, LLAMA_3_8B, torch.bfloat16, [by_name(name)], [2048, 8192, 8193])
    assert fit.bits_per_element == row_bits / 128
    assert fit.bytes_per_token == 32 * 8 * 2 * row_bits / 8
    assert fit.blocks == memory.kv // (16 * fit.bytes_per_token)
    assert fit.tokens == 16 * fit.blocks
    assert fit.requests == (fit.blocks // 128, fit.blocks // 512, fit.blocks // 513)


def test_the_number_that_everyone_knows() -> None:
    memory = Memory(80 * GIB, WEIGHTS, reserve=8 * GIB)
    (fit,) = plan(memory, LLAMA_3_8B, torch.bfloat16, [by_name("none")], [8192])
    assert (fit.bytes_per_token, fit.tokens, fit.requests) == (128 * 1024, 467_280, (57,))


def test_a_layer_in_another_format_counts() -> None:
    memory = Memory(GIB, 0, 0)
    shape = KVShape(layers=2, kv_heads=1, head_dim=64, block_size=1)
    (fit,) = plan(memory, shape, torch.float32, [by_name("int8", "0:none")], [])
    assert fit.bytes_per_token == 2 * (64 * 4 + 64 + 4)


@given(
    kv=st.integers(1, 2**32),
    heads=st.integers(1, 9),
    dim=st.sampled_from([64, 80, 96, 128]),
    block_size=st.integers(1, 64),
    context=st.integers(1, 10_000),
    name=st.sampled_from(NAMES),
)
def test_what_fits_fits_and_one_more_does_not(
    kv: int, heads: int, dim: int, block_size: int, context: int, name: str
) -> None:
    shape = KVShape(3, heads, dim, block_size)
    (fit,) = plan(Memory(kv, 0, 0), shape, torch.float32, [by_name(name)], [context])
    assert fit.tokens * fit.bytes_per_token <= kv
    assert (fit.tokens + block_size) * fit.bytes_per_token > kv
    blocks_of_one = -(-context // block_size)
    assert fit.requests[0] * blocks_of_one <= fit.blocks < (fit.requests[0] + 1) * blocks_of_one


def test_no_memory_left_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"16.00 GiB leaves nothing for KV: 14.96 GiB are for weights, 2.00 GiB are kept",
    ):
        Memory(16 * GIB, WEIGHTS, 2 * GIB)
