"""Attention over paged KV beside torch's own over contiguous float32: decode and prefill.

    make bench-attention

Each round runs all candidates once, so their ratios hold on a noisy machine; medians over all
rounds. Paged blocks lie in random order. Also the CPU time that the kernels take to compile, in a
process of its own with an empty cache, and then to come from the cache. Prints JSON with the raw
numbers and the machine.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from worker.attention.base import AttentionBackend, PagedBatch
from worker.attention.numba_backend import NumbaAttention
from worker.attention.torch_backend import TorchAttention
from worker.kernels.simd import LANES
from worker.kv.format import KVShape, LayerKV, by_name

BLOCK_SIZE = 16
CPU = torch.device("cpu")
FORMATS = ("none", "fp8", "int8", "int4", "k8v4")


class Shape(NamedTuple):
    """`new` tokens of each sequence at the end of a context of `context`, those included."""

    sequences: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    new: int = 1


SHAPES = (
    Shape(8, 16, 8, 64, 2048),
    Shape(4, 32, 8, 128, 4096),
    Shape(1, 16, 8, 64, 8192),
    Shape(1, 16, 8, 64, 2048 + 512, 512),
    Shape(1, 16, 8, 64, 512, 512),
    Shape(1, 16, 8, 64, 2048, 2048),
)


WARM_UP = """
import sys, time
import torch
from worker.attention.numba_backend import NumbaAttention
from worker.kernels.simd import LANES
from worker.kv.format import KVShape, by_name
backend = NumbaAttention()
layers = by_name(sys.argv[1]).allocate(KVShape(1, 1, 64, 16), 1, torch.device("cpu"), torch.float32)
begin = time.process_time()
backend.warm_up(layers)
print(time.process_time() - begin)
"""


class Inputs(NamedTuple):
    """One step: its queries, and keys and values [sequences, kv_heads, context, head_dim]."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    tables: Tensor


def make_inputs(shape: Shape) -> Inputs:
    rng = torch.Generator().manual_seed(1)
    keys, values = (
        torch.randn(shape.sequences, shape.kv_heads, shape.context, shape.head_dim, generator=rng)
        for _ in range(2)
    )
    queries = torch.randn(shape.sequences, shape.heads, shape.new, shape.head_dim, generator=rng)
    blocks = shape.context // BLOCK_SIZE
    tables = torch.randperm(shape.sequences * blocks, generator=rng).view(shape.sequences, blocks)
    return Inputs(queries, keys, values, tables)


def contiguous(shape: Shape, inputs: Inputs) -> Callable[[], Tensor]:
    """Torch's attention; [sequences, heads, new, head_dim]."""
    mask = None
    if 1 < shape.new < shape.context:
        mask = torch.ones(shape.new, shape.context, dtype=torch.bool)
        mask = mask.tril(shape.context - shape.new)
    return partial(
        scaled_dot_product_attention,
        inputs.queries,
        inputs.keys,
        inputs.values,
        attn_mask=mask,
        is_causal=1 < shape.new == shape.context,
        enable_gqa=True,
    )


def paged(
    shape: Shape, inputs: Inputs, kv_format: str, backend: AttentionBackend
) -> Callable[[], Tensor]:
    """The same over paged KV. All KV is there before, so that what is timed writes none."""
    [kv] = by_name(kv_format).allocate(
        KVShape(1, shape.kv_heads, shape.head_dim, BLOCK_SIZE),
        inputs.tables.numel(),
        CPU,
        torch.float32,
    )
    fill(kv, inputs)
    tokens = shape.sequences * shape.new
    batch = PagedBatch(
        token_ids=torch.zeros(tokens, dtype=torch.int64),
        positions=torch.arange(shape.context - shape.new, shape.context).repeat(shape.sequences),
        slots=torch.full((tokens,), -1),
        block_tables=inputs.tables,
        query_starts=torch.arange(shape.sequences + 1) * shape.new,
        context_lengths=torch.full((shape.sequences,), shape.context),
        sample_rows=torch.zeros(0, dtype=torch.int64),
    )
    skipped = torch.zeros(tokens, shape.kv_heads, shape.head_dim)
    return partial(
        backend.attend,
        inputs.queries.transpose(1, 2).flatten(0, 1).contiguous(),
        skipped,
        skipped,
        batch=batch,
        kv=kv,
        scale=shape.head_dim**-0.5,
    )


def fill(kv: LayerKV, inputs: Inputs) -> None:
    offsets = torch.arange(BLOCK_SIZE)
    for table, keys, values in zip(inputs.tables, inputs.keys, inputs.values, strict=True):
        slots = (table[:, None] * BLOCK_SIZE + offsets).flatten()
        kv.write(slots, keys.transpose(0, 1), values.transpose(0, 1))


def seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def measure(shape: Shape, rounds: int) -> dict[str, Any]:
    """Medians in milliseconds, and of the ratios to contiguous float32."""
    inputs = make_inputs(shape)
    backend = NumbaAttention()
    candidates = {"contiguous": contiguous(shape, inputs)}
    candidates |= {name: paged(shape, inputs, name, backend) for name in FORMATS}
    candidates["torch paged int8"] = paged(shape, inputs, "int8", TorchAttention())
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds + 1):
        for name, run in candidates.items():
            times[name].append(seconds(run))
    base = times["contiguous"][1:]
    return {
        "shape": shape._asdict(),
        "candidates": {
            name: {
                "median_ms": round(median(measured[1:]) * 1e3, 3),
                "ratio": round(median(a / b for a, b in zip(measured[1:], base, strict=True)), 3),
                "milliseconds": [round(each * 1e3, 3) for each in measured[1:]],
            }
            for name, measured in times.items()
        },
    }


def compile_seconds(kv_format: str) -> dict[str, float]:
    """CPU time from an empty cache, and then from the cache."""
    with tempfile.TemporaryDirectory() as cache:
        first, second = (
            float(
                subprocess.run(
                    [sys.executable, "-c", WARM_UP, kv_format],
                    check=True,
                    capture_output=True,
                    env=os.environ | {"NUMBA_CACHE_DIR": cache},
                ).stdout
            )
            for _ in range(2)
        )
    return {"compiled": round(first, 2), "from the cache": round(second, 2)}


def machine() -> str:
    """The CPU, how many of its cores there are, and the vectors that the kernels use."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ] or [platform.processor()]
    return f"{os.cpu_count()} x {names[0]}, {LANES} lanes"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    compiling = {name: compile_seconds(name) for name in FORMATS}
    print("CPU seconds:", compiling, file=sys.stderr)
    results = []
    for shape in SHAPES:
        results.append(measure(shape, options.rounds))
        for name, each in results[-1]["candidates"].items():
            print(shape, name, each["median_ms"], "ms,", each["ratio"], file=sys.stderr)
    described = {"machine": machine(), "compiling": compiling, "threads": options.threads}
    json.dump(described | {"results": results}, sys.stdout)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
