"""Random paged batches, and attention over them in float64: what every backend is held to.

A case has sequences of unlike lengths, with prefixes in shared blocks, whole prompts, chunks,
decodes and last tokens that are in their slots already, through block tables out of order.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from worker.attention.base import PagedBatch
from worker.kv.format import KVShape, LayerKV, by_name

FORMATS = ("none", "fp8", "int8", "int4", "k8v4")
BLOCK = 4
CPU = torch.device("cpu")


class Part(NamedTuple):
    """One sequence of a batch; `present`: its one new token is a fully cached prompt's last."""

    before: int
    new: int
    present: bool
    shares_first: bool


class Geometry(NamedTuple):
    """What is not a matter of the batch."""

    kv_heads: int
    group: int
    dim: int


parts = st.lists(
    st.builds(Part, st.integers(0, 40), st.integers(1, 12), st.booleans(), st.booleans())
    | st.builds(Part, st.integers(0, 40), st.just(1), st.booleans(), st.booleans()),
    min_size=1,
    max_size=4,
)
geometries = st.builds(
    Geometry, st.integers(1, 3), st.integers(1, 8), st.sampled_from((64, 80, 96, 128))
)
seeds = st.integers(0, 2**32 - 1)


@dataclass(frozen=True, slots=True)
class Case:
    """What `attend` gets, and what it must give.

    Attributes:
        kv: holds what came before the new tokens.
        kv_after: what `kv` must be afterwards.
        expected: [T, heads, dim] float64.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    batch: PagedBatch
    kv: LayerKV
    kv_after: LayerKV
    scale: float
    expected: Tensor


def make_case(kv_format: str, sequences: list[Part], geometry: Geometry, seed: int) -> Case:
    kv_heads, group, dim = geometry
    numbers = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=numbers)

    lengths = [part.before + part.new for part in sequences]
    each = [-(-length // BLOCK) for length in lengths]
    total = sum(each) + 2
    spare = torch.randperm(total, generator=numbers).tolist()
    tables = [[spare.pop() for _ in range(count)] for count in each]
    memory = normal(2, total * BLOCK, kv_heads, dim)
    for part, table in zip(sequences, tables, strict=True):
        if part.shares_first:
            shared = min(part.before, sequences[0].before) // BLOCK
            table[:shared] = tables[0][:shared]

    kv, kv_after = (
        by_name(kv_format).allocate(KVShape(1, kv_heads, dim, BLOCK), total, CPU, torch.float32)[0]
        for _ in range(2)
    )
    slots, rows = [], []
    for part, table, length in zip(sequences, tables, lengths, strict=True):
        position = torch.arange(length)
        slot = torch.tensor(table)[position // BLOCK] * BLOCK + position % BLOCK
        stored = length if part.present and part.new == 1 else part.before
        kv.write(slot[:stored], *memory[:, slot[:stored]])
        kv_after.write(slot, *memory[:, slot])
        slots.append(torch.where(position >= stored, slot, -1)[part.before :])
        rows.append(memory[:, slot[part.before :]])
    all_slots = torch.cat(slots)
    # What has the slot -1 must not be written, whatever it is.
    keys, values = torch.where((all_slots < 0)[None, :, None, None], 1e9, torch.cat(rows, dim=1))
    queries = normal(len(all_slots), kv_heads * group, dim)
    padded = [table + [0] * (max(each) - len(table)) for table in tables]
    batch = PagedBatch(
        token_ids=torch.zeros(len(all_slots), dtype=torch.int64),
        positions=torch.cat(
            [torch.arange(part.before, part.before + part.new) for part in sequences]
        ),
        slots=all_slots,
        block_tables=torch.tensor(padded),
        query_starts=torch.tensor([0, *(part.new for part in sequences)]).cumsum(0),
        context_lengths=torch.tensor(lengths),
        sample_rows=torch.zeros(0, dtype=torch.int64),
    )
    scale = dim**-0.5
    expected = _attended(queries, batch, kv_after, group, scale)
    return Case(queries, keys, values, batch, kv, kv_after, scale, expected)


def _attended(queries: Tensor, batch: PagedBatch, kv: LayerKV, group: int, scale: float) -> Tensor:
    """Each query over what `kv` reads back, in float64."""
    queries = kv.keys.rotate_queries(queries).double()
    output = torch.empty_like(queries)
    starts = batch.query_starts.tolist()
    for sequence, length in enumerate(batch.context_lengths.tolist()):
        keys, values = (rows.double() for rows in kv.gather(batch.block_tables[sequence], length))
        for row in range(starts[sequence], starts[sequence + 1]):
            seen = int(batch.positions[row]) + 1
            for head, query in enumerate(queries[row]):
                weights = torch.softmax(scale * (keys[head // group, :seen] @ query), dim=0)
                output[row, head] = weights @ values[head // group, :seen]
    return output
