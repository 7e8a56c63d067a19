"""Random paged batches, and what attention over them is in float64, computed naively."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from worker.attention.base import AttentionBackend, PagedBatch
from worker.kv.format import KVShape, LayerKV, by_name


class Sequence(NamedTuple):
    """Args: tokens `before` the `new` ones; whether the last new one is in its slot already."""

    before: int
    new: int
    present: bool = False


class Case(NamedTuple):
    """One call of `AttentionBackend.attend`."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    batch: PagedBatch
    kv: LayerKV
    scale: float

    def attend(self, backend: AttentionBackend) -> Tensor:
        """What `backend` makes of it."""
        queries, keys, values, batch, kv, scale = self
        return backend.attend(queries, keys, values, batch=batch, kv=kv, scale=scale)

    def expected(self) -> Tensor:
        """The same in float64, of the KV as its slots hold it; after `attend`."""
        queries = self.kv.keys.rotate_queries(self.queries).double()
        rows = []
        for sequence, context in enumerate(self.batch.context_lengths.tolist()):
            keys, values = self.kv.gather(self.batch.block_tables[sequence], context)
            first, end = self.batch.query_starts[sequence : sequence + 2].tolist()
            for row in range(first, end):
                seen = context - (end - row) + 1
                rows.append(_naive(queries[row], keys[:, :seen], values[:, :seen], self.scale))
        return torch.stack(rows)


def make_case(
    sequences: list[Sequence],
    *,
    kv_format: str,
    seed: int,
    kv_heads: int = 2,
    group: int = 2,
    head_dim: int = 64,
    block_size: int = 16,
    shared: int = 0,
) -> Case:
    """Random queries, keys and values; blocks out of order.

    Args:
        sequences: of the batch.
        kv_format: see `by_name`.
        seed: of all that is random.
        kv_heads: of the model.
        group: query heads of each.
        head_dim: of the model.
        block_size: tokens of a block.
        shared: blocks at the start that all sequences have in common; none has a new token there.
    """
    rng = torch.Generator().manual_seed(seed)
    needed = [math.ceil((s.before + s.new) / block_size) for s in sequences]
    total = sum(needed) + 1
    order = torch.randperm(total, generator=rng)
    tables = torch.zeros(len(sequences), max(needed), dtype=torch.int64)
    for table, blocks in zip(tables, order.split([*needed, 1]), strict=False):
        table[: len(blocks)] = blocks
    tables[:, :shared] = tables[0, :shared].clone()
    shape = KVShape(1, kv_heads, head_dim, block_size)
    [kv] = by_name(kv_format).allocate(shape, total, torch.device("cpu"), torch.float32)
    slots, keys, values = [], [], []
    for table, sequence in zip(tables, sequences, strict=True):
        length = sequence.before + sequence.new
        position = torch.arange(length)
        slot = table[position // block_size] * block_size + position % block_size
        k, v = torch.randn(2, length, kv_heads, head_dim, generator=rng)
        already = length if sequence.present else sequence.before
        kv.write(slot[:already], k[:already], v[:already])
        # What is there already comes again as garbage, which must not be written.
        k[already - sequence.present :], v[already - sequence.present :] = (
            (1e9, 1e9) if sequence.present else (k[already:], v[already:])
        )
        slot[: already if sequence.present else 0] = -1
        slots.append(slot[sequence.before :])
        keys.append(k[sequence.before :])
        values.append(v[sequence.before :])
    news = torch.tensor([s.new for s in sequences])
    batch = PagedBatch(
        token_ids=torch.zeros(int(news.sum()), dtype=torch.int64),
        positions=torch.cat([torch.arange(s.before, s.before + s.new) for s in sequences]),
        slots=torch.cat(slots),
        block_tables=tables,
        query_starts=torch.cat([torch.zeros(1, dtype=torch.int64), news.cumsum(0)]),
        context_lengths=torch.tensor([s.before + s.new for s in sequences]),
        sample_rows=torch.zeros(0, dtype=torch.int64),
    )
    queries = torch.randn(int(news.sum()), kv_heads * group, head_dim, generator=rng)
    return Case(queries, torch.cat(keys), torch.cat(values), batch, kv, head_dim**-0.5)


def _naive(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """One query row [heads, dim] over [kv_heads, context, dim], float64."""
    group = len(query) // len(keys)
    rows = []
    for head, one in enumerate(query):
        k, v = keys[head // group].double(), values[head // group].double()
        rows.append(torch.softmax(scale * (k @ one), dim=0) @ v)
    return torch.stack(rows)
