"""The backend of CPUs: compiled loops that read the blocks as they lie, in any KV format."""

from math import ceil
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from worker.attention.base import PagedBatch
from worker.kernels import attention as kernels
from worker.kernels import cache, memory
from worker.kernels.team import together
from worker.kv.format import Fp8Rows, Int4Rows, Int8Rows, LayerKV, NoneRows, Rows

# So many tasks for each thread even out that tasks and threads differ; contexts are split for it,
# but not into less than so many tokens.
_TASKS_PER_THREAD = 4
_LEAST_SPLIT = 4 * kernels.TILE

# Pairs of a query row and a token, in one layer, that are worth waking other threads for.
_LEAST_SHARED = 2**14

# Tokens whose KV is worth it.
_LEAST_WRITTEN = 64


class Plan(NamedTuple):
    """Args: `tasks` [tasks, COLUMNS] as `kernels.attend` takes them; `threads` that share them."""

    tasks: NDArray[np.int64]
    threads: int


class NumbaAttention:
    """An `AttentionBackend` for float32 on a CPU, with as many threads as torch has."""

    def __init__(self) -> None:
        cache.keep(kernels.write, kernels.attend, kernels.merge)
        self._compiled: set[tuple[type[Rows], type[Rows]]] = set()
        self._planned: tuple[PagedBatch, Plan] | None = None

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        batch: PagedBatch,
        kv: LayerKV,
        scale: float,
    ) -> Tensor:
        """See `AttentionBackend.attend`."""
        self.warm_up([kv])
        # A copy, for these are rotated in place.
        queries = torch.unflatten(queries, 1, (keys.shape[1], -1)).clone(
            memory_format=torch.contiguous_format
        )
        output = torch.empty_like(queries)
        step = kernels.Step(
            queries.numpy(),
            output.numpy(),
            batch.block_tables.numpy(),
            batch.query_starts.numpy(),
            batch.context_lengths.numpy(),
        )
        rows = keys.contiguous().numpy(), values.contiguous().numpy()
        plan = self._plan(batch, *queries.shape[1:3])
        self._run(step, plan, batch.slots.numpy(), rows, kv, scale)
        return output.flatten(1, 2)

    def warm_up(self, layers: list[LayerKV]) -> None:
        """Compile what attention over `layers` needs, or read it from the cache."""
        ints = np.empty(0, np.int64)
        nothing = np.empty((0, 1, 1, 1), np.float32)
        step = kernels.Step(nothing, nothing, ints[None], ints, ints)
        plan = Plan(np.empty((0, kernels.COLUMNS), np.int64), threads=1)
        for kv in layers:
            kinds = type(kv.keys), type(kv.values)
            if kinds not in self._compiled:
                self._run(step, plan, ints, (nothing[..., 0], nothing[..., 0]), kv, 1.0)
                self._compiled.add(kinds)

    def _plan(self, batch: PagedBatch, kv_heads: int, group: int) -> Plan:
        """The plan of a step, made for its first layer."""
        if self._planned is None or self._planned[0] is not batch:
            plan = make_plan(
                batch.query_starts.diff().tolist(),
                batch.context_lengths.tolist(),
                kv_heads=kv_heads,
                group=group,
                threads=torch.get_num_threads(),
            )
            self._planned = batch, plan
        return self._planned[1]

    def _run(
        self,
        step: kernels.Step,
        plan: Plan,
        slots: NDArray[np.int64],
        rows: tuple[NDArray[np.float32], NDArray[np.float32]],
        kv: LayerKV,
        scale: float,
    ) -> None:
        room = len(plan.tasks), kernels.MOST_ROWS, step.queries.shape[3] + 2
        parts = np.empty(room, np.float32)
        memories = memory_of(kv.keys), memory_of(kv.values)
        taken = np.zeros((2, 1), np.int64)
        writers = plan.threads if len(slots) >= _LEAST_WRITTEN else 1
        together(writers, kernels.write, slots, rows, step.queries, *memories, taken[0])
        together(plan.threads, kernels.attend, step, plan.tasks, taken[1], *memories, scale, parts)
        kernels.merge(step, plan.tasks, parts)


def make_plan(
    new: list[int], contexts: list[int], *, kv_heads: int, group: int, threads: int
) -> Plan:
    """Divide a step into tasks of roughly even size, enough of them for the threads.

    Args:
        new: tokens of each sequence, the last of its context.
        contexts: tokens of each sequence, the new ones included.
        kv_heads: of the model.
        group: query heads of each.
        threads: there are.
    """
    strips = [
        (sequence, first, end, context - length + ceil(end / group))
        for sequence, (length, context) in enumerate(zip(new, contexts, strict=True))
        for first in range(0, length * group, kernels.MOST_ROWS)
        for end in [min(first + kernels.MOST_ROWS, length * group)]
    ]
    pairs = kv_heads * sum((end - first) * tokens for _, first, end, tokens in strips)
    if pairs < _LEAST_SHARED:
        threads = 1
    wanted = ceil(threads * _TASKS_PER_THREAD / (len(strips) * kv_heads)) if threads > 1 else 1
    tasks = []
    for sequence, first, end, tokens in strips:
        splits = max(1, min(wanted, tokens // _LEAST_SPLIT))
        length = ceil(tokens / splits / kernels.TILE) * kernels.TILE
        starts = range(0, tokens, length)
        tasks += [
            (sequence, head, first, end, start, min(start + length, tokens), split, len(starts))
            for head in range(kv_heads)
            for split, start in enumerate(starts)
        ]
    table = np.array(tasks, np.int64).reshape(-1, kernels.COLUMNS)
    return Plan(table, min(threads, len(tasks)))


def memory_of(rows: Rows) -> memory.Memory:
    """The tensors of `rows` for compiled code."""
    match rows:
        case NoneRows():
            return memory.Elements(rows.elements.numpy())
        case Int8Rows():
            return memory.Int8(rows.steps.numpy(), rows.scales.numpy(), rows.run)
        case Fp8Rows():
            return memory.Fp8(rows.steps.view(torch.uint8).numpy(), rows.scales.numpy())
        case Int4Rows():
            ranges = rows.ranges.view(torch.int32).squeeze(-1)
            return memory.Int4(rows.packed.numpy(), ranges.numpy(), rows.run)
    raise TypeError(f"there is no compiled attention over {type(rows).__name__}")
