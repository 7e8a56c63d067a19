"""What a routing decision costs, and what it costs to know what the workers hold.

    .venv/bin/python -m bench.index

A decision takes the packed token ids of a prompt of 32k tokens and gives 64 workers, which hold a
million boundaries in all, ranked, each with what it holds of the prompt. When `ai-dynamo-runtime`
is installed its index takes turns with ours: token ids in, what each worker holds out, not ranked,
with equal blocks of 64 tokens. A ratio is the median over rounds of another's time by ours.

Then events of 32 boundaries are applied, in a process for each index and size, which says how much
it has grown: first each boundary for one worker, then for a second one. Ours also evicts as much as
it stores, and forgets workers.

All times are CPU time of the process, of all its threads, so that what else the machine does counts
little. Dynamo's index has a thread of its own, and the time of waiting for it is not counted.
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
from operator import truediv
from pathlib import Path
from statistics import median
from time import process_time
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
    first, *others = taken
    return {
        "us": {name: round(median(times), 1) for name, times in taken.items()},
        "ratio": {
            name: round(median(map(truediv, taken[name], taken[first])), 2) for name in others
        },
        "raw_us": taken,
    }


def microseconds(action: Callable[[], Any], times: int) -> float:
    """Mean time of `action`."""
    started = process_time()
    for _ in range(times):
        action()
    return round(1e6 * (process_time() - started) / times, 1)


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
        before, rate = resident_bytes(), Rate()
        for dealt in runs(total // BATCH):
            run = dealt._replace(worker=(dealt.worker + shift) % WORKERS)
            rate.time(partial(index.apply, run, index.event(run)), BATCH)
        index.decide(b"" if name == "ours" else [])  # type: ignore[arg-type]
        result[f"{holders} holder"] = {
            "boundaries_per_second": rate.per_second,
            "bytes_per_boundary": round((resident_bytes() - before) / total, 1),
        }
    if isinstance(index, Ours):
        result["churn"] = churn(index, total)
    result["forget_us"] = [
        round(microseconds(partial(index.forget, worker), 1), 1) for worker in range(5)
    ]
    return result


class Rate:
    """How much is done in a second."""

    def __init__(self) -> None:
        self._done, self._seconds = 0, 0.0

    def time(self, action: Callable[[], Any], amount: int) -> None:
        """`action` does `amount`."""
        started = process_time()
        action()
        self._seconds += process_time() - started
        self._done += amount

    @property
    def per_second(self) -> int:
        """Mean."""
        return round(self._done / self._seconds)


def churn(index: Ours, total: int) -> dict[str, Any]:
    """Each worker stores new boundaries, after the `total` that are held, and evicts as many."""
    rate, count = Rate(), CHURN // BATCH
    # NOTE: a whole number of rounds, so that a run and the one it replaces have one worker.
    begin = -(-total // BATCH // WORKERS) * WORKERS
    for new, old in zip(runs(count, begin), runs(count), strict=True):
        event = index.event(new, evicted=old.names)
        rate.time(partial(index.apply, new, event), 2 * BATCH)
    return {"boundaries_per_second": rate.per_second}


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
            started = process_time()
            await service.select(request)
            times.append(round(1e6 * (process_time() - started), 1))
        return times

    times = asyncio.run(measure())
    return {"us": median(times), "raw_us": times}


if __name__ == "__main__":
    main()
