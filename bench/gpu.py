"""Attention over paged KV on a GPU: right first, then how near it comes to the speed of its memory.

    python -m bench.gpu

1. Every KV format against plain attention in float32, on mixed lengths, decode and prefill.
2. Decode: bytes of KV read a second, as a part of what a plain copy on the same card moves; the
   copy counts what it reads and what it writes.
3. FlashInfer's paged decode on the same KV, where it is installed.

Prints JSON. Exit codes: 0, 1 where an output is off, 2 where there is no GPU or no Triton.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from worker.attention.base import AttentionBackend, PagedBatch
from worker.kv.format import KVShape, LayerKV, NoneRows, by_name

BLOCK_SIZE = 16
FORMATS = ("none", "fp8", "int8", "int4", "k8v4")
COPY_BYTES = 2**32
ROUNDS = 30

# Of an output element, as a part of the largest. Weights and values meet in the compute dtype.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}

NO_GPU = 2


class Heads(NamedTuple):
    """Of a model."""

    query: int
    kv: int
    dim: int


class Decode(NamedTuple):
    """One new token for each of `sequences`, at the end of `context`."""

    sequences: int
    heads: Heads
    context: int


CORRECT = (
    (Heads(8, 8, 64), torch.float32),
    (Heads(8, 8, 64), torch.float16),
    (Heads(6, 2, 80), torch.bfloat16),
    (Heads(8, 2, 96), torch.bfloat16),
    (Heads(32, 4, 128), torch.bfloat16),
)
MIXED = [(0, 300), (37, 1), (511, 9), (4000, 1), (16, 1), (1000, 100)]
DECODES = (
    Decode(64, Heads(32, 8, 128), 8192),
    Decode(4, Heads(32, 8, 128), 32768),
    Decode(64, Heads(16, 8, 64), 8192),
)


class Inputs(NamedTuple):
    """One call of `AttentionBackend.attend`, but for its KV."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    batch: PagedBatch


def allocate(kv_format: str, heads: Heads, blocks: int, dtype: torch.dtype) -> LayerKV:
    shape = KVShape(1, heads.kv, heads.dim, BLOCK_SIZE)
    [kv] = by_name(kv_format).allocate(shape, blocks, torch.device("cuda"), dtype)
    return kv


def make_inputs(lengths: list[tuple[int, int]], heads: Heads, dtype: torch.dtype) -> Inputs:
    """For sequences of so many tokens (before, new); their blocks lie in random order."""
    each = [-(-(before + new) // BLOCK_SIZE) for before, new in lengths]
    order = torch.randperm(sum(each)).split(each)
    tables = torch.nn.utils.rnn.pad_sequence(list(order), batch_first=True)
    positions = [torch.arange(before, before + new) for before, new in lengths]
    slots = [
        table[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE
        for table, position in zip(tables, positions, strict=True)
    ]
    new = torch.tensor([0, *(new for _, new in lengths)])
    tokens = int(new.sum())
    batch = PagedBatch(
        token_ids=torch.zeros(tokens, dtype=torch.int64).cuda(),
        positions=torch.cat(positions).cuda(),
        slots=torch.cat(slots).cuda(),
        block_tables=tables.cuda(),
        query_starts=new.cumsum(0).cuda(),
        context_lengths=torch.tensor([sum(length) for length in lengths]).cuda(),
        sample_rows=torch.zeros(0, dtype=torch.int64).cuda(),
    )
    queries = torch.randn(tokens, heads.query, heads.dim, dtype=dtype, device="cuda")
    keys, values = torch.randn(2, tokens, heads.kv, heads.dim, dtype=dtype, device="cuda")
    return Inputs(queries, keys, values, batch)


def fill(kv: LayerKV, dim: int) -> None:
    """Random rows in every slot."""
    blocks, heads = kv.keys.tensors[0].shape[:2]
    for some in torch.arange(blocks * BLOCK_SIZE, device="cuda").split(2**16):
        kv.write(some, *torch.randn(2, len(some), heads, dim, dtype=kv.keys.dtype, device="cuda"))


def error(backend: AttentionBackend, kv_format: str, heads: Heads, dtype: torch.dtype) -> float:
    """Largest error of an output element, as a part of the largest, on a mixed batch."""
    inputs = make_inputs(MIXED, heads, dtype)
    queries, keys, values, batch = inputs
    kv = allocate(kv_format, heads, int(batch.block_tables.max()) + 1, dtype)
    fill(kv, heads.dim)
    scale = heads.dim**-0.5
    found = backend.attend(queries, keys, values, batch=batch, kv=kv, scale=scale)
    expected = attended(kv.keys.rotate_queries(queries), batch, kv, scale)
    return float((found - expected).abs().max() / expected.abs().max())


def attended(queries: Tensor, batch: PagedBatch, kv: LayerKV, scale: float) -> Tensor:
    """What attention is, in float32, of what `kv` reads back."""
    output = []
    starts = batch.query_starts.tolist()
    for sequence, length in enumerate(batch.context_lengths.tolist()):
        rows = queries[starts[sequence] : starts[sequence + 1]].float().transpose(0, 1)
        keys, values = (part.float() for part in kv.gather(batch.block_tables[sequence], length))
        new = rows.shape[1]
        mask = torch.ones(new, length, dtype=torch.bool, device="cuda").tril(length - new)
        output.append(
            scaled_dot_product_attention(
                rows[None], keys[None], values[None], mask, scale=scale, enable_gqa=True
            )[0].transpose(0, 1)
        )
    return torch.cat(output)


def captured(run: Callable[[], object]) -> Callable[[], None]:
    """`run` without the work of the host, which is done here, once."""
    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def milliseconds(run: Callable[[], object]) -> float:
    """Median time on the device."""
    times = []
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return median(times[ROUNDS // 5 :])


def copy_speed() -> float:
    """Bytes a second that a copy on the device reads and writes.

    NOTE: not captured: in a graph, copies take another way, which was slower on an H200.
    """
    source = torch.ones(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * COPY_BYTES / milliseconds(lambda: target.copy_(source)) * 1e3


def measure(backend: AttentionBackend, decode: Decode, copied: float) -> dict[str, Any]:
    """One layer's decode attention in bfloat16, format by format, then FlashInfer."""
    sequences, heads, context = decode
    dtype = torch.bfloat16
    queries, keys, values, batch = make_inputs([(context - 1, 1)] * sequences, heads, dtype)
    # All KV is there before, so that what is timed writes none.
    batch = replace(batch, slots=torch.full_like(batch.slots, -1))
    scale = heads.dim**-0.5
    results = {}
    for kv_format in FORMATS:
        kv = allocate(kv_format, heads, batch.block_tables.numel(), dtype)
        fill(kv, heads.dim)
        size = sum(tensor.nbytes for rows in kv for tensor in rows.tensors)
        run = partial(backend.attend, queries, keys, values, batch=batch, kv=kv, scale=scale)
        results[kv_format] = speed(run, size, copied)
        if kv_format == "none":
            results["flashinfer"] = measure_flashinfer(queries, batch, kv, size, copied)
    return {"shape": decode._asdict(), "results": results}


def speed(run: Callable[[], object], size: int, copied: float) -> dict[str, float]:
    took = milliseconds(captured(run))
    read = size / took * 1e3
    return {"milliseconds": took, "bytes": size, "of_copy": read / copied}


def measure_flashinfer(
    queries: Tensor, batch: PagedBatch, kv: LayerKV, size: int, copied: float
) -> dict[str, float] | str:
    try:
        from flashinfer import BatchDecodeWithPagedKVCacheWrapper
    except ImportError:
        return "not installed"
    assert isinstance(kv.keys, NoneRows)
    assert isinstance(kv.values, NoneRows)
    pages = batch.block_tables.shape[1]
    sequences, heads, dim = queries.shape
    counts = torch.arange(sequences + 1, dtype=torch.int32, device="cuda") * pages
    wrapper = BatchDecodeWithPagedKVCacheWrapper(
        torch.empty(2**28, dtype=torch.uint8, device="cuda"), "HND"
    )
    wrapper.plan(
        counts,
        batch.block_tables.flatten().int(),
        (batch.context_lengths - 1).int() % BLOCK_SIZE + 1,
        heads,
        kv.keys.elements.shape[1],
        dim,
        BLOCK_SIZE,
        q_data_type=queries.dtype,
        kv_data_type=queries.dtype,
    )
    memory = kv.keys.elements, kv.values.elements
    return speed(partial(wrapper.run, queries, memory), size, copied)


def main() -> int:
    if not torch.cuda.is_available():
        print("bench.gpu: torch sees no CUDA device; nothing was measured", file=sys.stderr)
        return NO_GPU
    try:
        from worker.attention.triton_backend import TritonAttention
    except ImportError as problem:
        print(f"bench.gpu: {problem}; install radixgate[gpu]", file=sys.stderr)
        return NO_GPU
    torch.manual_seed(1)
    backend = TritonAttention()
    errors = [
        {"format": kv_format, **heads._asdict(), "dtype": str(dtype), "error": off, "right": right}
        for heads, dtype in CORRECT
        for kv_format in FORMATS
        for off in [error(backend, kv_format, heads, dtype)]
        for right in [off <= TOLERANCE[dtype]]
    ]
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "errors": errors,
    }
    right = all(each["right"] for each in errors)
    if right:
        copied = copy_speed()
        report |= {
            "copy_bytes_per_second": copied,
            "decode": [measure(backend, decode, copied) for decode in DECODES],
        }
    json.dump(report, sys.stdout)
    return 0 if right else 1


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main())
