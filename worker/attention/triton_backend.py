"""The backend of CUDA devices: Triton kernels that read blocks as they lie, in any KV format."""

from functools import cache, cached_property
from math import gcd, log2
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from worker.attention import triton_kernels as kernels
from worker.attention.base import PagedBatch
from worker.attention.triton_plan import FEW_ROWS, MANY_ROWS, TILE, make_plan
from worker.kv.format import Fp8Rows, Int4Rows, Int8Rows, LayerKV, NoneRows, Rows

_LOG2_E = log2(torch.e)

# Of a program, by its rows; fewer read faster than more.
_WARPS = {FEW_ROWS: 2, MANY_ROWS: 4}


class Memory(NamedTuple):
    """The tensors of `Rows` for the kernels; `data` stands for scales that a format lacks."""

    kind: str
    data: Tensor
    scales: Tensor
    run: int = 1


class Launch(NamedTuple):
    """A `triton_plan.Launch` on the device: `tasks` is [tasks, 6] int32."""

    rows: int
    tasks: Tensor
    is_split: bool


class Step(NamedTuple):
    """What is the same for all layers: `written` are the rows that have a slot; None: all have."""

    launches: list[Launch]
    slots: Tensor
    written: Tensor | None


class TritonAttention:
    """An `AttentionBackend` for float32, float16 and bfloat16 on CUDA devices.

    The host waits for the device once a step, in its first layer, to plan; then no more.

    Args:
        processors: to divide the work for; None: as many as the device has.
    """

    def __init__(self, processors: int | None = None) -> None:
        self._given_processors = processors
        self._prepared: tuple[PagedBatch, Step] | None = None

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
        kv_heads, group = keys.shape[1], queries.shape[1] // keys.shape[1]
        step = self._prepare(batch, kv_heads, group)
        if step.written is not None:
            keys, values = keys[step.written], values[step.written]
        if len(step.slots):
            kv.keys.write(step.slots, keys)
            kv.values.write(step.slots, values)
        queries = kv.keys.rotate_queries(queries).contiguous()
        output = torch.empty_like(queries)
        for launch in step.launches:
            _launch(launch, queries, output, batch=batch, kv=kv, scale=scale)
        return output

    def warm_up(self, layers: list[LayerKV]) -> None:
        """See `AttentionBackend.warm_up`; the proof of a model at its load compiles the kernels."""

    @cached_property
    def _processors(self) -> int:
        if self._given_processors is not None:
            return self._given_processors
        return torch.cuda.get_device_properties().multi_processor_count

    def _prepare(self, batch: PagedBatch, kv_heads: int, group: int) -> Step:
        """The step of a batch, made for its first layer."""
        if self._prepared is None or self._prepared[0] is not batch:
            plan = make_plan(
                batch.query_starts.diff().tolist(),
                batch.context_lengths.tolist(),
                kv_heads=kv_heads,
                group=group,
                processors=self._processors,
            )
            device = batch.slots.device
            launches = [
                Launch(
                    launch.rows,
                    torch.tensor(launch.tasks, dtype=torch.int32, device=device),
                    launch.is_split,
                )
                for launch in plan
            ]
            written = (batch.slots >= 0).nonzero().flatten()
            everything = len(written) == len(batch.slots)
            step = Step(launches, batch.slots[written], None if everything else written)
            self._prepared = batch, step
        return self._prepared[1]


def _launch(
    launch: Launch,
    queries: Tensor,
    output: Tensor,
    *,
    batch: PagedBatch,
    kv: LayerKV,
    scale: float,
) -> None:
    keys, values = _memory(kv.keys), _memory(kv.values)
    _, kv_heads, block_size = keys.data.shape[:3]
    _, heads, dim = queries.shape
    width = triton.next_power_of_2(dim)
    size = len(launch.tasks), kv_heads, launch.rows
    # NOTE: where nothing is split, the kernel is compiled for them but never writes to them.
    room = size if launch.is_split else (0, 0, 0)
    parts = queries.new_empty((*room, width), dtype=torch.float32)
    tops, totals = queries.new_empty((2, *room), dtype=torch.float32)
    shape: dict[str, Any] = {
        "KV_HEADS": kv_heads,
        "GROUP": heads // kv_heads,
        "DIM": dim,
        "WIDTH": width,
        "ROWS": launch.rows,
        "VALUES": values.kind,
    }
    kernels.attend[size[:2]](
        queries,
        output,
        parts,
        tops,
        totals,
        launch.tasks,
        batch.block_tables,
        batch.block_tables.stride(0),
        batch.query_starts,
        batch.context_lengths,
        keys.data,
        keys.scales,
        values.data,
        values.scales,
        scale * _LOG2_E,
        BLOCK_SIZE=block_size,
        RUN=max(keys.run, values.run),
        PIECE=gcd(max(keys.run, values.run), dim // 2),
        TILE=TILE,
        KEYS=keys.kind,
        num_warps=_WARPS[launch.rows],
        num_stages=2,
        **shape,
    )
    if launch.is_split:
        kernels.merge[size[:2]](
            output, parts, tops, totals, launch.tasks, batch.query_starts, **shape
        )


def _memory(rows: Rows) -> Memory:
    match rows:
        case NoneRows():
            return Memory("none", rows.elements, rows.elements)
        case Int8Rows():
            return Memory("int8", rows.steps, rows.scales)
        case Fp8Rows():
            known = _has_fp8(rows.steps.device)
            steps = rows.steps if known else rows.steps.view(torch.uint8)
            return Memory("fp8", steps, rows.scales)
        case Int4Rows():
            return Memory("int4", rows.packed, rows.ranges, rows.group)
    raise TypeError(f"there is no Triton attention over {type(rows).__name__}")


@cache
def _has_fp8(device: torch.device) -> bool:
    """Whether its compute units know e4m3; the interpreter is on the safe side without."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)
