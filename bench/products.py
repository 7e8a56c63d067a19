"""All linear layers of SmolLM2-135M once, by rows: ours, torch's own, and oneDNN's packed ones.

    python -m bench.products

Weights are random; they are read from memory, since those of one layer are long out of the cache
when it is its turn again. Candidates take turns, so ratios hold on a noisy machine; medians over
all rounds, after one that is not counted. Prints JSON with the raw numbers.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from worker.threads import share_cores

share_cores()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn.functional import linear  # noqa: E402

from worker.kernels.cache import keep  # noqa: E402
from worker.kernels.panels import Linear  # noqa: E402
from worker.kernels.product import PLAIN, multiply, whole  # noqa: E402
from worker.kernels.team import together  # noqa: E402

LAYERS = 30
# Outputs and inputs of a layer: Q, K and V together, output, gate, up, down.
SHAPES = ((960, 576), (576, 576), (1536, 576), (1536, 576), (576, 1536))
ROWS = (1, 2, 4, 8, 16, 32, 64, 256, 512)
# What oneDNN chooses its layout for; the same panels serve any more than one row.
LAYOUT_ROWS = 256

Weights = list[Tensor]


def ours(weights: Weights, rows: int) -> Callable[[], None]:
    layers = []
    for weight in weights:
        panels = Linear.zeros(1, *weight.shape)
        panels.put(0, weight.numpy(), np.zeros(len(weight), np.float32))
        layers.append(panels)
    room, threads = whole(rows), torch.get_num_threads()
    factors = np.ones(room, np.float32)
    inputs = {size: np.ones((room, size), np.float32) for _, size in SHAPES}
    outputs = {size: np.empty((room, size), np.float32) for size, _ in SHAPES}

    def run() -> None:
        for panels, (size, depth) in zip(layers, SHAPES * LAYERS, strict=True):
            taken = np.zeros(1, np.int64)
            arguments = inputs[depth], factors, outputs[size], taken
            together(threads, multiply, panels, 0, PLAIN, rows, *arguments)

    return run


def torchs(weights: Weights, rows: int) -> Callable[[], None]:
    inputs = {size: torch.ones(rows, size) for _, size in SHAPES}

    def run() -> None:
        for weight in weights:
            linear(inputs[weight.shape[1]], weight)

    return run


def onednns(weights: Weights, rows: int) -> Callable[[], None]:
    inputs = {size: torch.ones(rows, size) for _, size in SHAPES}
    packed = [torch.ops.mkldnn._reorder_linear_weight(each, LAYOUT_ROWS) for each in weights]

    def run() -> None:
        for weight, (_, depth) in zip(packed, SHAPES * LAYERS, strict=True):
            torch.ops.mkldnn._linear_pointwise(inputs[depth], weight, None, "none", [], "")

    return run


def measure(weights: Weights, rows: int, rounds: int) -> dict[str, Any]:
    """Milliseconds of each candidate, and ratios to ours; above 1, ours is faster."""
    candidates = {
        "ours": ours(weights, rows),
        "torch": torchs(weights, rows),
        "onednn": onednns(weights, rows),
    }
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds + 1):
        for name, run in candidates.items():
            began = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - began) * 1000)
    raw = {name: each[1:] for name, each in times.items()}
    return {
        "rows": rows,
        "median_ms": {name: round(median(each), 2) for name, each in raw.items()},
        "ratio": {
            name: round(median(a / b for a, b in zip(each, raw["ours"], strict=True)), 2)
            for name, each in raw.items()
        },
        "milliseconds": {name: [round(ms, 2) for ms in each] for name, each in raw.items()},
    }


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    keep(multiply)
    weights = [torch.randn(shape) for shape in SHAPES * LAYERS]
    results = [measure(weights, rows, arguments.rounds) for rows in ROWS]
    json.dump({"threads": arguments.threads, "results": results}, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
