"""What compiled code writes into the KV memory against what the torch formats write."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from torch import Tensor

from worker.attention.numba_backend import memory_of
from worker.kernels import memory
from worker.kv.format import KVShape, Rows, by_name
from worker.kv.format.names import VALUES

CPU = torch.device("cpu")
BLOCKS, HEADS, BLOCK_SIZE = 4, 2, 5
SLOTS = BLOCKS * BLOCK_SIZE

# Halves of steps, what is not finite, both ends of what float32 and bfloat16 can hold.
SPECIAL = [0.0, -0.0, 0.5, 1.5, -2.5, 127.0, 448.0, 1e-44, -1e-38, 3.39e38, -3.4e38]
SPECIAL += [torch.inf, -torch.inf, torch.nan]

head_dims = st.sampled_from([8, 24, 64, 80, 96, 128])


@st.composite
def rows(draw: st.DrawFn, special: list[float]) -> Tensor:
    """Rows [SLOTS, HEADS, head_dim] of very different sizes, some with special elements."""
    rng = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    shape = SLOTS, HEADS, draw(head_dims)
    sizes = torch.rand(*shape[:2], 1, generator=rng) * 250 - 130
    made = torch.randn(shape, generator=rng) * torch.exp2(sizes)
    for _ in range(draw(st.integers(0, 30))):
        slot, head = draw(st.integers(0, SLOTS - 1)), draw(st.integers(0, HEADS - 1))
        some = slice(None) if draw(st.booleans()) else draw(st.integers(0, shape[2] - 1))
        made[slot, head, some] = draw(st.sampled_from(special))
    return made


def allocate(kind: type[Rows], head_dim: int) -> Rows:
    return kind(KVShape(1, HEADS, head_dim, BLOCK_SIZE), BLOCKS, CPU, torch.float32)


@njit(error_model="numpy")
def store_all(memories: Any, slots: Any, all_rows: Any) -> None:
    for index in range(len(slots)):
        block, offset = slots[index] // BLOCK_SIZE, slots[index] % BLOCK_SIZE
        for head in range(HEADS):
            memory.store(memories, block, head, offset, all_rows[index, head])


@njit(error_model="numpy")
def store_at(pattern: Any, addresses: Any, row: Any) -> None:
    memory.store(memory.at(pattern, addresses), 1, 1, 2, row)


@njit(error_model="numpy")
def rotate_all(memories: Any, all_rows: Any) -> None:
    for index in range(len(all_rows)):
        for head in range(HEADS):
            memory.rotate(memories, all_rows[index, head])


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", VALUES)
@settings(deadline=None, max_examples=100)
@given(made=rows(SPECIAL), seed=st.integers(0, 2**32 - 1))
def test_a_store_leaves_what_torch_leaves(name: str, made: Tensor, seed: int) -> None:
    slots = torch.randperm(SLOTS, generator=torch.Generator().manual_seed(seed))
    expected, ours = allocate(VALUES[name], made.shape[2]), allocate(VALUES[name], made.shape[2])
    expected.write(slots, made)
    store_all(memory_of(ours), slots.numpy(), made.numpy())
    for want, got in zip(expected.tensors, ours.tensors, strict=True):
        torch.testing.assert_close(got.float(), want.float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["none", "fp8", "int8", "int4"])
@settings(deadline=None)
@given(made=rows([0.0, 100.0, -0.03]))
def test_rows_are_rotated_as_torch_rotates(name: str, made: Tensor) -> None:
    keys = allocate(by_name(name).default.keys, made.shape[2])
    # Sums of elements that cancel are as exact as the row is long, not as they are small.
    length = made.double().norm(dim=-1, keepdim=True).clamp(min=1e-300)
    expected = keys.rotate_queries(made).double()
    rotate_all(memory_of(keys), made.numpy())
    torch.testing.assert_close(made / length, expected / length, rtol=0, atol=2e-6)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", VALUES)
def test_a_memory_can_lie_elsewhere(name: str) -> None:
    kind = VALUES[name]
    pattern, expected, ours = (allocate(kind, 64) for _ in range(3))
    row = torch.randn(64, generator=torch.Generator().manual_seed(1))
    made = torch.zeros(1, HEADS, 64)
    made[0, 1] = row
    expected.write(torch.tensor([BLOCK_SIZE + 2]), made)
    addresses = [tensor.data_ptr() for tensor in ours.tensors]
    store_at(memory_of(pattern), np.array(addresses), row.numpy())
    for want, got, left in zip(expected.tensors, ours.tensors, pattern.tensors, strict=True):
        assert torch.equal(got.float(), want.float())
        assert not left.float().any()
