"""What a simulation costs: many requests of a public trace's shape over many workers.

    make bench-simulator
    .venv/bin/python -m bench.simulator [POLICY ...]

The first takes what is compiled (`make compiled`), the second the sources.

The conversation trace of Mooncake is repeated, with other prompts each time, to `--requests`; they
come at `--rate` a second. Each policy is played `--rounds` times in turn, each time in a process of
its own, so that its peak of memory is its own, the trace included. Reported are seconds of wall
clock and of CPU, of the simulation alone and of finding the ceiling (`sim.ideal`). The trace is
in `../shared/data/traces`, or where `--trace` says; without it nothing is measured, and the JSON
says so.
"""

import argparse
import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import sim.simulation
from sim.hardware.presets import preset
from sim.ideal import ideal_cached
from sim.policy.catalogue import CATALOGUE, policy
from sim.run import simulate
from sim.setting import Setting
from sim.trace.formats import open_trace
from sim.trace.repeat import repeated

TRACE = Path(__file__).parents[2] / "shared" / "data" / "traces" / "mooncake_conversation.jsonl.gz"
PRESET = "h100-llama-8b"
RATE = 22.0
"""Requests a second: about 70 % of what 16 such workers serve at most."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What to simulate. Args: see the options."""

    trace: Path
    requests: int
    workers: int
    rate: float


@dataclass(frozen=True, slots=True)
class Result:
    """Of one run.

    Args:
        policy: that chose the workers.
        wall_seconds, cpu_seconds: of the simulation.
        ideal_seconds: CPU, of finding the ceiling.
        peak_mb: most memory of the process.
        virtual_seconds: that were simulated.
        hit_rate: by tokens, so that runs can be told to be alike.
    """

    policy: str
    wall_seconds: float
    cpu_seconds: float
    ideal_seconds: float
    peak_mb: float
    virtual_seconds: float
    hit_rate: float


def measure(name: str, asked: Asked) -> Result:
    """In a process of its own."""
    trace = repeated(open_trace(asked.trace), asked.requests)
    trace = trace.faster(asked.rate / (len(trace.requests) / trace.requests[-1].at))
    setting = Setting(preset(PRESET, "none"), asked.workers, trace.block_tokens)
    began = time.process_time()
    ideal = ideal_cached(trace, setting.setup.block_size)
    wall, cpu = time.perf_counter(), time.process_time()
    run = simulate(trace, setting, policy(name), name=name, ideal=ideal)
    return Result(
        policy=name,
        wall_seconds=time.perf_counter() - wall,
        cpu_seconds=time.process_time() - cpu,
        ideal_seconds=cpu - began,
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        virtual_seconds=float(run.requests.ended.max()),
        hit_rate=float(run.requests.cached.sum() / run.requests.prompt_tokens.sum()),
    )


def results(asked: Asked, policies: Sequence[str], rounds: int) -> Iterator[Result]:
    """All of them, one after the other."""
    spawn = multiprocessing.get_context("spawn")
    for name in rounds * list(policies):
        with ProcessPoolExecutor(1, spawn) as process:
            yield process.submit(measure, name, asked).result()


def main() -> None:
    """Print all."""
    parser = argparse.ArgumentParser(description="Measure what a simulation costs.")
    parser.add_argument("policies", nargs="*", default=["cost", "round_robin", "sglang"])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--rate", type=float, default=RATE, help="requests a second")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--trace", type=Path, default=TRACE, help="as Mooncake publishes them")
    options = parser.parse_args()
    if unknown := [name for name in options.policies if name not in CATALOGUE]:
        parser.error(f"no policy {', '.join(unknown)}; there are {', '.join(CATALOGUE)}")
    asked = Asked(options.trace, options.requests, options.workers, options.rate)
    there = asked.trace.exists()
    summary = {
        "skipped": [] if there else [f"no {asked.trace}"],
        "requests": asked.requests,
        "workers": asked.workers,
        "preset": PRESET,
        "compiled": Path(sim.simulation.__file__).suffix != ".py",
        "requests_per_second": asked.rate,
        "raw": [asdict(each) for each in results(asked, options.policies, options.rounds)]
        if there
        else [],
    }
    json.dump(summary, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
