"""What it costs a gateway to know the demand on a pool.

    .venv/bin/python -m bench.demand

A request pays for being counted when it has its turn. Later, between requests, the boundaries of
its prompt are sampled; those of a prompt that was cached as a whole have to be hashed for that,
those of others are there. Every two seconds each gateway makes an entry of what it counted and
reads those of the others. Whoever asks for a metric has the signals read.

Prompts of 4k and 32k tokens; workers of 1M tokens; 4 gateways that have made an entry every two
seconds for ten minutes. All times are CPU time of the process; each is the median of its rounds.
"""

import argparse
import json
import random
from collections.abc import Callable
from statistics import median
from time import process_time_ns
from types import SimpleNamespace
from typing import Any, cast

from radixgate.namespace import NamespaceSeed
from radixgate.prefix import pack_hashes, pack_tokens
from radixgate.v1.demand_pb2 import Demand
from radixgate.v1.sync_pb2 import Load

from gateway.route.router import Prompt
from gateway.scale.reuse import REMEMBERED, Reuse
from gateway.scale.signals import read
from gateway.scale.tally import SAMPLE_LIMIT, Tally, count
from gateway.scale.window import Entry, Spans, Window

STRIDE = 64
SEED = NamespaceSeed(7)
WORKERS = 16
KV_TOKENS = 1_048_576
GATEWAYS = 4
MEMORY, EVERY = 600.0, 2.0


def main() -> None:
    """Print JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    chance = random.Random(1)
    found: dict[str, Any] = {}
    for tokens in (4_096, 32_768):
        packed = pack_tokens(chance.choices(range(50_000), k=tokens))
        found[f"prompt of {tokens} tokens, µs"] = _prompt(packed, rounds)
    found["entries and signals, µs"] = _entries(chance, rounds)
    print(json.dumps(found, indent=2, ensure_ascii=False))


def _prompt(packed: bytes, rounds: int) -> dict[str, float]:
    tally = _tally()
    times: dict[str, list[float]] = {"count": [], "sample, hashed before": [], "sample": []}
    for _ in range(rounds):
        made, fresh = (Prompt(packed, STRIDE, SEED) for _ in range(2))
        made.boundaries[:]
        for name, prompt in (("sample, hashed before", made), ("sample", fresh)):
            times["count"].append(_microseconds(lambda p=prompt: tally.entered(p, 0.001)))
            times[name].append(_microseconds(lambda: tally.sample(1)))
    return {name: round(median(each), 2) for name, each in times.items()}


def _entries(chance: random.Random, rounds: int) -> dict[str, float]:
    names = [chance.getrandbits(60) for _ in range(2 * WORKERS * 256)]
    window, now = Window(Spans(MEMORY)), 0.0
    added, signals = [], []
    size = 0
    for at in range(int(MEMORY / EVERY)):
        now = at * EVERY
        for gateway in range(GATEWAYS):
            entry = Entry(now, _entry(f"g{gateway}", at, chance.sample(names, 256)))
            size = entry.demand.ByteSize()
            added.append(_microseconds(lambda e=entry: window.add(e)))
    workers = count(_workers())
    for _ in range(rounds):
        signals.append(_microseconds(lambda: read(window, workers, WORKERS, now)))
    assert read(window, workers, WORKERS, now).working_set_tokens > 0
    full = Reuse(MEMORY)
    full.asked([chance.getrandbits(60) for _ in range(REMEMBERED)], 4, STRIDE, 0.0)
    return {
        "bytes of an entry": size,
        "boundaries in its sample": 256,
        "of these, at most": SAMPLE_LIMIT,
        "take in an entry": round(median(added), 1),
        "read the signals": round(median(signals), 1),
        "forget all after a silence": round(
            _microseconds(lambda: full.working_set(0.0, 2 * MEMORY)), 1
        ),
    }


def _entry(gateway: str, number: int, sample: list[int]) -> Demand:
    demand = Demand(
        gateway=gateway,
        number=number + 1,
        requests=50,
        waited_seconds=0.5,
        prompt_tokens=200_000,
        cached_tokens=150_000,
        served_tokens={f"worker-{at}": 9_000 for at in range(WORKERS)},
        sample=pack_hashes(sample),
        level=4,
        stride=STRIDE,
    )
    demand.MergeFrom(count(_workers()))
    return demand


def _workers() -> list[Any]:
    blocks = KV_TOKENS // 16
    load = Load(
        max_running=64,
        running=20,
        free_blocks=blocks // 10,
        cached_blocks=blocks // 2,
        total_blocks=blocks,
        prefill_tokens_per_second=1e5,
    )
    registration = SimpleNamespace(stride=STRIDE)
    worker = SimpleNamespace(load=load, kv_tokens=KV_TOKENS, registration=registration)
    return [worker] * WORKERS


def _tally() -> Tally:
    """As it is after its first entry: the sample is as sparse as the workers are large."""
    tally = Tally("g")
    tally.take(cast(Any, _workers()), 0, 0.0)
    return tally


def _microseconds(run: Callable[[], Any]) -> float:
    began = process_time_ns()
    run()
    return (process_time_ns() - began) / 1e3


if __name__ == "__main__":
    main()
