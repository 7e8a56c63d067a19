"""Both KV formats: what is written is read back, through any block table, and sizes are true."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from worker.kv.format import FORMATS, KVShape, by_name

SHAPE = KVShape(layers=3, kv_heads=2, head_dim=64, block_size=4)
CPU = torch.device("cpu")


@pytest.mark.parametrize("name", list(FORMATS))
@given(st.permutations(range(5)), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_reads_back_what_was_written(name: str, table: list[int], length: int, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    layer = by_name(name).allocate(SHAPE, 5, CPU, torch.float32)[1]
    keys, values = torch.randn(2, length, 2, 64, generator=rng) * 10
    keys[0] = 0
    position, blocks = torch.arange(length), torch.tensor(table)
    layer.write(blocks[position // 4] * 4 + position % 4, keys, values)
    for wrote, read in zip((keys, values), layer.gather(blocks, length), strict=True):
        step = wrote.abs().amax(-1, keepdim=True) / 127
        error = (read.transpose(0, 1) - wrote).abs()
        assert read.dtype == torch.float32
        assert bool((error <= (0 if name == "none" else step / 2 * 1.001)).all())


@pytest.mark.parametrize("name", list(FORMATS))
def test_slot_minus_one_writes_nothing(name: str) -> None:
    [layer, *_] = by_name(name).allocate(SHAPE, 1, CPU, torch.float32)
    ones = torch.ones(2, 2, 64)
    layer.write(torch.tensor([-1, 1]), ones * torch.tensor([7.0, 3.0])[:, None, None], ones)
    keys, values = layer.gather(torch.tensor([0]), 4)
    assert keys[0, :, 0].tolist() == pytest.approx([0, 3, 0, 0])
    assert values[0, :, 0].tolist() == pytest.approx([0, 1, 0, 0])


@pytest.mark.parametrize(("name", "bits"), [("none", 32), ("int8", 8.5)])
def test_bytes_per_block(name: str, bits: float) -> None:
    elements = 2 * 3 * 4 * 2 * 64
    assert by_name(name).bytes_per_block(SHAPE, torch.float32) == elements * bits / 8


def test_blocks_in_a_budget() -> None:
    fmt = by_name("none")
    each = fmt.bytes_per_block(SHAPE, torch.float32)
    assert fmt.blocks_in(3 * each - 1, SHAPE, torch.float32) == 2
    with pytest.raises(ValueError, match=f"at least 4 blocks, {4 * each} bytes, are needed"):
        fmt.blocks_in(3 * each, SHAPE, torch.float32, at_least=4)


def test_an_unknown_format_names_those_there_are() -> None:
    with pytest.raises(ValueError, match="'int3' is unknown; there are: none, int8"):
        by_name("int3")
