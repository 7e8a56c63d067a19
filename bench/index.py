"""What a routing decision costs, and what it costs to know what the workers hold.

    .venv/bin/python -m bench.index

A decision takes the packed token ids of a prompt of 32k tokens and gives 64 workers, which hold a
million boundaries in all, ranked, each with what it holds of the prompt. When `ai-dynamo-runtime`
is installed its index takes turns with ours: token ids in, what each worker holds out, not ranked,
with equal blocks of 64 tokens. A ratio is the median over rounds of another's time by ours.

Then events of 32 boundaries are applied, in a process for each index and size, which says how much
it has grown: first each boundary for one worker, then for a second one. Ours also evicts as much as
it stores, and forgets workers.
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import xxhash
from radixgate.prefix import boundary_hashes, pack_tokens

from bench.indexes import (
    HAS_DYNAMO,
    SEED,
    STRIDE,
    WORKERS,
    Dynamo,
    Names,
    Ours,
    Run,
)

TOKENS = 32_768
BOUNDARIES = TOKENS // STRIDE
HELD = 1_000_000
SIZES = (1_000_000, 4_000_000)
BATCH = 32
CHURN = 204_800
DECISIONS = 20
"""In one round of one candidate."""

CASES = {
    "nobody holds any of it": [0] * WORKERS,
    "8 of 64 hold all of it": [BOUNDARIES * (number % 8 == 0) for number in range(WORKERS)],
    "each holds 8 boundaries more than the one before": [8 * n + 8 for n in range(WORKERS)],
}
"""How many boundaries of the prompt each worker holds."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure decisions and the upkeep of the index.")
    parser.add_argument("--rounds", type=int, default=51)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        result = selection() if options.child == "select" else upkeep(options.child, *options.sizes)
    else:
        indexes = ["ours", "dynamo"] if HAS_DYNAMO else ["ours"]
        result = {
            "decision": decisions(options.rounds),
            "select": child("select") if HAS_DYNAMO else None,
            "upkeep": [child(index, size) for size in options.sizes for index in indexes],
        }
    json.dump(result, sys.stdout, indent=2)
    print()


def decisions(rounds: int) -> dict[str, Any]:
    """Hashing alone, then a decision in each case."""
    rng = random.Random(2)
    prompts = [[rng.randrange(150_000) for _ in range(TOKENS)] for _ in CASES]
    packed = [pack_tokens(ids) for ids in prompts]
    ours, dynamo = filled(Ours(), prompts), filled(Dynamo(), prompts) if HAS_DYNAMO else None
    hashing: dict[str, Callable[[], Any]] = {
        "all boundaries": partial(boundary_hashes, packed[0], STRIDE, SEED),
        "one pass over the prompt": partial(xxhash.xxh3_64_intdigest, packed[0], SEED),
    }
    if dynamo:
        hashing["dynamo"] = partial(dynamo.names, prompts[0])
    results = {"hashing": compared(hashing, rounds)}
    for (case, held), ids, prompt in zip(CASES.items(), prompts, packed, strict=True):
        found = {each.worker.id: each.matched_tokens for each in ours.decide(prompt)}
        assert found == {f"worker-{n}": STRIDE * length for n, length in enumerate(held)}, case
        candidates: dict[str, Callable[[], Any]] = {"ours": partial(ours.decide, prompt)}
        if dynamo:
            scores = sorted(dynamo.decide(ids).values())
            assert scores == sorted(length for length in held if length), case
            candidates["dynamo"] = partial(dynamo.decide, ids)
        results[case] = compared(candidates, rounds)
    return results


def filled(index: Ours | Dynamo, prompts: list[list[int]]) -> Any:
    """`index`, told that workers hold the `prompts` as `CASES` say, and prompts of their own."""
    for held, ids in zip(CASES.values(), prompts, strict=True):
        names = index.names(ids)
        for worker, length in enumerate(held):
            if length:
                run = Run(worker, names[:length])
                index.apply(run, index.event(run))
    for run in runs((HELD - sum(map(sum, CASES.values()))) // BATCH):
        index.apply(run, index.event(run))
    return index


def runs(count: int, first: int = 0) -> Iterator[Run]:
    """Runs of `BATCH` names from the one numbered `first` on, dealt to all workers in turn."""

    def names(number: int) -> Names:
        rng = random.Random(number)
        return [rng.getrandbits(64) for _ in range(BATCH)]

    for number in range(first, first + count):
        begins = number // WORKERS % (BOUNDARIES // BATCH) == 0
        parent = None if begins else names(number - WORKERS)[-1]
        yield Run(number % WORKERS, names(number), parent)


def compared(candidates: dict[str, Callable[[], Any]], rounds: int) -> dict[str, Any]:
    """Median microseconds of each, and by how much the others take longer than the first."""
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, action in candidates.items():
            taken[name].append(microseconds(action, DECISIONS))
    first, *others = taken.values()
    ratios = [median(b / a for a, b in zip(first, other, strict=True)) for other in others]
    return {
        "us": {name: round(median(times), 1) for name, times in taken.items()},
        "ratio": dict(zip(list(taken)[1:], [round(ratio, 2) for ratio in ratios], strict=True)),
        "raw_us": {name: [round(time, 1) for time in times] for name, times in taken.items()},
    }


def microseconds(action: Callable[[], Any], times: int) -> float:
    """Mean time of `action`."""
    started = perf_counter()
    for _ in range(times):
        action()
    return 1e6 * (perf_counter() - started) / times


def child(*arguments: str | int) -> Any:
    """What this module prints, run as a child."""
    index, *sizes = map(str, arguments)
    command = [sys.executable, "-m", "bench.index", "--child", index]
    command += ["--sizes", *sizes] if sizes else []
    environment = os.environ | {"DYN_LOG": "off"}
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment).stdout
    return json.loads(output)


def upkeep(name: str, total: int) -> dict[str, Any]:
    """Apply `total` boundaries to one index, twice."""
    index = Ours() if name == "ours" else Dynamo()
    result: dict[str, Any] = {"index": name, "boundaries": total}
    for shift, holders in enumerate(("first", "second")):
        before, seconds = resident_bytes(), 0.0
        for dealt in runs(total // BATCH):
            run = dealt._replace(worker=(dealt.worker + shift) % WORKERS)
            seconds += 1e-6 * microseconds(partial(index.apply, run, index.event(run)), 1)
        index.decide(b"" if name == "ours" else [])  # type: ignore[arg-type]
        result[f"{holders} holder"] = {
            "boundaries_per_second": round(total / seconds),
            "bytes_per_boundary": round((resident_bytes() - before) / total, 1),
        }
    if isinstance(index, Ours):
        result["churn"] = churn(index, total)
    result["forget_us"] = [
        round(microseconds(partial(index.forget, worker), 1), 1) for worker in range(5)
    ]
    return result


def churn(index: Ours, total: int) -> dict[str, Any]:
    """Each worker stores new boundaries, after the `total` that are held, and evicts as many."""
    seconds, count = 0.0, CHURN // BATCH
    # NOTE: a whole number of rounds, so that a run and the one it replaces have one worker.
    begin = -(-total // BATCH // WORKERS) * WORKERS
    for new, old in zip(runs(count, begin), runs(count), strict=True):
        event = index.event(new, evicted=old.names)
        seconds += 1e-6 * microseconds(partial(index.apply, new, event), 1)
    return {"boundaries_per_second": round(2 * CHURN / seconds)}


def resident_bytes() -> int:
    """Of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def selection() -> dict[str, Any]:
    """Dynamo's `SelectionService.select` for a prompt that nobody holds."""
    from dynamo._core import SelectionService

    ids = [random.Random(3).randrange(150_000) for _ in range(TOKENS)]
    request = {"model_name": "m", "token_ids": ids}

    async def measure() -> list[float]:
        service, times = SelectionService(), []
        for worker in range(WORKERS):
            # NOTE: nobody answers there, so no worker holds anything.
            await service.upsert_worker(
                {
                    "worker_id": worker,
                    "model_name": "m",
                    "block_size": STRIDE,
                    "endpoint": "http://127.0.0.1:9",
                    "kv_events_endpoints": {0: "tcp://127.0.0.1:9"},
                }
            )
        for _ in range(100):
            started = perf_counter()
            await service.select(request)
            times.append(round(1e6 * (perf_counter() - started), 1))
        return times

    times = asyncio.run(measure())
    return {"us": median(times), "raw_us": times}


if __name__ == "__main__":
    main()
