"""The torch backend against naive float64 attention on random paged batches."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from worker.attention.base import PagedBatch
from worker.attention.torch_backend import TorchAttention
from worker.kv.format import KVShape, by_name

KV_HEADS, GROUPS, DIM, BLOCK = 2, 3, 8, 4
HEADS = KV_HEADS * GROUPS


def naive(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """One query row [heads, dim] over [context, kv_heads, dim], in float64."""
    rows = []
    for head in range(HEADS):
        k, v = keys[:, head // GROUPS].double(), values[:, head // GROUPS].double()
        weights = torch.softmax(scale * (k @ query[head].double()), dim=0)
        rows.append(weights @ v)
    return torch.stack(rows)


# (tokens before, new tokens, the last new token is in its slot already)
sequences = st.lists(
    st.tuples(st.integers(0, 19), st.integers(1, 9), st.booleans()), min_size=1, max_size=4
)


@given(sequences, st.integers(0, 2**32 - 1))
@pytest.mark.parametrize(("fmt", "tolerance"), [("none", 1e-5), ("int8", 3e-2)])
def test_equals_naive_attention(
    fmt: str, tolerance: float, shapes: list[tuple[int, int, bool]], seed: int
) -> None:
    rng = torch.Generator().manual_seed(seed)
    blocks_each = [math.ceil((before + new) / BLOCK) for before, new, _ in shapes]
    total = sum(blocks_each) + 2
    shuffled = torch.randperm(total, generator=rng)[: sum(blocks_each)].split(blocks_each)
    [kv] = by_name(fmt).allocate(
        KVShape(1, KV_HEADS, DIM, BLOCK), total, torch.device("cpu"), torch.float32
    )
    keys = [torch.randn(b + n, KV_HEADS, DIM, generator=rng) for b, n, _ in shapes]
    values = [torch.randn(b + n, KV_HEADS, DIM, generator=rng) for b, n, _ in shapes]
    queries = [torch.randn(n, HEADS, DIM, generator=rng) for _, n, _ in shapes]
    slots = []
    for (before, new, present), table, k, v in zip(shapes, shuffled, keys, values, strict=True):
        position = torch.arange(before + new)
        slot = table[position // BLOCK] * BLOCK + position % BLOCK
        already = before + new if present and new == 1 else before
        kv.write(slot[:already], k[:already], v[:already])
        slots.append(torch.where(position >= already, slot, -1)[before:])
    tables = torch.zeros(len(shapes), max(blocks_each), dtype=torch.int64)
    for row, table in zip(tables, shuffled, strict=True):
        row[: len(table)] = table
    news = [new for _, new, _ in shapes]
    batch = PagedBatch(
        token_ids=torch.zeros(sum(news), dtype=torch.int64),
        positions=torch.cat([torch.arange(b, b + n) for b, n, _ in shapes]),
        slots=torch.cat(slots),
        block_tables=tables,
        query_starts=torch.tensor([0, *news]).cumsum(0),
        context_lengths=torch.tensor([b + n for b, n, _ in shapes]),
        sample_rows=torch.zeros(0, dtype=torch.int64),
    )
    skipped = batch.slots < 0
    garbage = torch.full_like(
        torch.cat([k[b:] for (b, _, _), k in zip(shapes, keys, strict=True)]), 1e9
    )
    new_keys = torch.cat([k[b:] for (b, _, _), k in zip(shapes, keys, strict=True)])
    new_keys = torch.where(skipped[:, None, None], garbage, new_keys)
    new_values = torch.cat([v[b:] for (b, _, _), v in zip(shapes, values, strict=True)])

    output = TorchAttention().attend(
        torch.cat(queries), new_keys, new_values, batch=batch, kv=kv, scale=0.3
    )

    expected = [
        naive(query, k[: before + i + 1], v[: before + i + 1], 0.3)
        for (before, _, _), q, k, v in zip(shapes, queries, keys, values, strict=True)
        for i, query in enumerate(q)
    ]
    assert torch.allclose(output.double(), torch.stack(expected), atol=tolerance, rtol=tolerance)
