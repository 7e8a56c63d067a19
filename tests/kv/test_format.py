"""KV formats: errors stay in bounds through any block table, shared blocks stay, sizes are true."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from worker.kv.format import (
    KEYS,
    VALUES,
    Int4Rows,
    Int8Rows,
    KVShape,
    RotatedInt4Rows,
    RotatedInt8Rows,
    Rows,
    by_name,
)

CPU = torch.device("cpu")
BLOCK = 4
BLOCKS = 5
HEADS = 2
ROWS = {rows.__name__: rows for rows in (*KEYS.values(), *VALUES.values())}

every_format = pytest.mark.parametrize("rows_of", ROWS.values(), ids=ROWS)
every_head_dim = pytest.mark.parametrize("dim", [64, 80, 96, 128])
# float32 rounds on the way, and what is this small may be lost
SLACK, TINY = 1.001, 1e-37


def none_bound(rows: Tensor) -> Tensor:
    return torch.zeros_like(rows)


def int8_bound(rows: Tensor) -> Tensor:
    return (rows.abs().amax(-1, keepdim=True) / 254).expand_as(rows)


def fp8_bound(rows: Tensor) -> Tensor:
    scale = rows.abs().amax(-1, keepdim=True) / 448
    return torch.maximum(rows.abs() / 16, scale / 1024)


def int4_bound(rows: Tensor) -> Tensor:
    groups = rows.unflatten(-1, (-1, 16 if rows.shape[-1] % 32 else 32))
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    scale = (high - low + low.abs() / 128) / 15 * (1 + 1 / 128)
    return (scale / 2).expand_as(groups).flatten(-2)


# Of what is stored, which for rotated keys is not what was written.
BOUNDS: dict[str, Callable[[Tensor], Tensor]] = {
    "NoneRows": none_bound,
    "Int8Rows": int8_bound,
    "RotatedInt8Rows": int8_bound,
    "Fp8Rows": fp8_bound,
    "Int4Rows": int4_bound,
    "RotatedInt4Rows": int4_bound,
}


def make(rows_of: type[Rows], dim: int, dtype: torch.dtype = torch.float32) -> Rows:
    return rows_of(KVShape(1, HEADS, dim, BLOCK), BLOCKS, CPU, dtype)


def rows_like_a_models(seed: int, length: int, dim: int) -> Tensor:
    """Normal, with a few large channels, an offset, a row of zeros, one of equal elements."""
    rng = torch.Generator().manual_seed(seed)
    rows = torch.randn(length, HEADS, dim, generator=rng) * 10 ** (seed % 9 - 4)
    rows *= torch.where(torch.rand(dim, generator=rng) < 0.05, 30, 1)
    rows += seed % 3 * 5
    rows[0] = 0
    rows[-1, 0] = seed % 7 - 3
    return rows


def slots_of(table: list[int], length: int) -> Tensor:
    position = torch.arange(length)
    return torch.tensor(table)[position // BLOCK] * BLOCK + position % BLOCK


def bits(memory: Tensor) -> Tensor:
    return memory.unsqueeze(-1).view(torch.uint8).clone()


@every_format
@every_head_dim
@given(st.permutations(range(BLOCKS)), st.integers(1, BLOCKS * BLOCK), st.integers(0, 2**32 - 1))
def test_errors_stay_in_the_bounds(
    rows_of: type[Rows], dim: int, table: list[int], length: int, seed: int
) -> None:
    wrote, memory = rows_like_a_models(seed, length, dim), make(rows_of, dim)
    memory.write(slots_of(table, length), wrote)
    read = memory.gather(torch.tensor(table), length).transpose(0, 1)
    stored = memory.rotate_queries(wrote)
    bound = BOUNDS[rows_of.__name__](stored)
    assert read.dtype == torch.float32
    assert bool(((read - stored).abs() <= bound * SLACK + TINY).all())


@every_format
@every_head_dim
@given(st.integers(0, 2**32 - 1))
def test_dot_products_are_those_of_what_was_written(
    rows_of: type[Rows], dim: int, seed: int
) -> None:
    rows, memory = rows_like_a_models(seed, 9, dim), make(rows_of, dim)
    query = torch.randn(HEADS, dim, generator=torch.Generator().manual_seed(seed))
    memory.write(slots_of([3, 0, 1], 9), rows)
    asked = memory.rotate_queries(query)
    read = memory.gather(torch.tensor([3, 0, 1]), 9).transpose(0, 1)
    bound = BOUNDS[rows_of.__name__](memory.rotate_queries(rows))
    error = ((asked * read).double().sum(-1) - (query * rows).double().sum(-1)).abs()
    rounding = 1e-5 * query.norm(dim=-1) * rows.norm(dim=-1)
    assert bool((error <= (asked.abs() * bound).sum(-1) * SLACK + rounding).all())


@every_format
@given(
    st.lists(st.integers(0, BLOCKS * BLOCK - 1), unique=True, min_size=1),
    st.integers(0, 2**32 - 1),
)
def test_a_write_changes_its_own_slots_alone(
    rows_of: type[Rows], slots: list[int], seed: int
) -> None:
    memory = make(rows_of, 64)
    memory.write(torch.arange(BLOCKS * BLOCK), rows_like_a_models(seed, BLOCKS * BLOCK, 64))
    before = [bits(tensor) for tensor in memory.tensors]
    memory.write(torch.tensor(slots), rows_like_a_models(seed + 1, len(slots), 64) * 1000)
    others = torch.tensor([slot not in slots for slot in range(BLOCKS * BLOCK)])
    for tensor, old in zip(memory.tensors, before, strict=True):
        new = bits(tensor)
        for block, offset in others.view(BLOCKS, BLOCK).nonzero().tolist():
            assert torch.equal(new[block, :, offset], old[block, :, offset])


@every_format
def test_what_is_not_finite_reads_back_as_nan(rows_of: type[Rows]) -> None:
    for strange in (torch.nan, torch.inf, -torch.inf):
        rows, memory = torch.ones(2, HEADS, 64), make(rows_of, 64)
        rows[1, 0, 5] = strange
        memory.write(torch.arange(2), rows)
        read = memory.gather(torch.tensor([0]), 2)
        assert not bool(read[0, 1].isfinite().all())
        assert bool(read[:, 0].isfinite().all() & read[1].isfinite().all())


@every_format
def test_memory_has_one_contiguous_run_for_each_block_and_head(rows_of: type[Rows]) -> None:
    for tensor in make(rows_of, 64).tensors:
        assert tensor.shape[:3] == (BLOCKS, HEADS, BLOCK)
        assert tensor.is_contiguous()


@every_format
def test_rows_are_of_the_dtype_of_the_compute(rows_of: type[Rows]) -> None:
    memory = make(rows_of, 64, torch.bfloat16)
    memory.write(torch.arange(3), torch.ones(3, HEADS, 64, dtype=torch.bfloat16))
    assert memory.gather(torch.tensor([0]), 3).dtype == torch.bfloat16
    assert memory.rotate_queries(torch.ones(1, 64, dtype=torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.parametrize("rows_of", [RotatedInt8Rows, RotatedInt4Rows])
@every_head_dim
def test_rotation_is_orthonormal_and_mixes_what_it_can(rows_of: type[Rows], dim: int) -> None:
    rotation = make(rows_of, dim).rotate_queries(torch.eye(dim))
    size = {64: 64, 80: 16, 96: 32, 128: 128}[dim]
    assert torch.allclose(rotation @ rotation.T, torch.eye(dim), atol=1e-6)
    assert torch.allclose(rotation.abs().amax(), torch.tensor(size**-0.5))
    assert bool(((rotation != 0).sum(1) == size).all())


@pytest.mark.parametrize(
    ("plain", "rotating"), [(Int8Rows, RotatedInt8Rows), (Int4Rows, RotatedInt4Rows)]
)
def test_rotation_tames_a_large_channel(plain: type[Rows], rotating: type[Rows]) -> None:
    keys = torch.randn(8, HEADS, 64, generator=torch.Generator().manual_seed(1))
    keys[..., 7] *= 50
    errors = []
    for rows_of in (plain, rotating):
        memory = make(rows_of, 64)
        memory.write(torch.arange(8), keys)
        read = memory.gather(torch.tensor([0, 1]), 8).transpose(0, 1)
        errors.append((read - memory.rotate_queries(keys)).norm())
    assert errors[1] < errors[0] / 2


def test_int4_packs_the_halves_of_a_row_into_bytes() -> None:
    memory = make(Int4Rows, 64)
    assert isinstance(memory, Int4Rows)
    codes = torch.arange(64) % 16
    memory.write(torch.tensor([BLOCK + 2]), codes.float().expand(1, HEADS, 64))
    assert memory.packed[1, 1, 2].tolist() == [17 * (byte % 16) for byte in range(32)]
    assert memory.ranges[1, 1, 2].tolist() == [[0, 1], [0, 1]]


def test_int4_refuses_an_odd_head_dim() -> None:
    with pytest.raises(ValueError, match="the model's head_dim is odd, 5"):
        make(Int4Rows, 5)


@pytest.mark.parametrize("name", ["none", "int8", "k8v4"])
def test_slot_minus_one_writes_nothing(name: str) -> None:
    [layer] = by_name(name).allocate(KVShape(1, HEADS, 64, BLOCK), 1, CPU, torch.float32)
    ones = torch.ones(2, HEADS, 64)
    layer.write(torch.tensor([-1, 1]), ones * torch.tensor([7.0, 3.0])[:, None, None], ones)
    keys, values = layer.gather(torch.tensor([0]), 4)
    query = layer.keys.rotate_queries(torch.ones(64)) / 64
    assert (keys[0] @ query).tolist() == pytest.approx([0, 3, 0, 0])
    assert values[0, :, 0].tolist() == pytest.approx([0, 1, 0, 0])
