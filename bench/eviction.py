"""What an eviction policy is worth: public traces replayed on the real tree, without a model.

    .venv/bin/python -m bench.eviction

Each request of a trace is opened, committed and closed, one after the other, in a pool of each size
and with each policy. A block of the trace is a block of the pool. Reported are the share of tokens
found cached, and the share of recompute time saved, where a token costs 1 + context / 16384. The
traces are in `../shared/data/traces`, or in the folder given as argument; without them nothing is
measured, and the JSON says so. Output tokens are not in the traces' ids, so they are not cached.
"""

import argparse
import gzip
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from radixgate.namespace import NamespaceSeed
from radixgate.prefix import TOKEN_BYTES, pack_tokens

from worker.kv.events import KvEvents
from worker.kv.manager import KVManager
from worker.kv.memory import MemoryPolicy
from worker.kv.policy import POLICIES, CostAware
from worker.kv.tokens import Tokens

DATA = Path(__file__).parents[2] / "shared" / "data" / "traces"
STRIDE = 64
SESSION_GAP_SECONDS = 60.0
"""From the start of one agentic session to that of the next; about 50 overlap then."""

Prompt = tuple[NamespaceSeed, bytes]


@dataclass(frozen=True, slots=True)
class Trace:
    """Args: its `file`; `block_tokens` for each id; pool `sizes` in blocks; `read`s its prompts."""

    file: str
    block_tokens: int
    sizes: tuple[int, ...]
    read: Callable[[Path], list[Prompt]]


@dataclass(frozen=True, slots=True)
class Result:
    """Args: `hit_rate` by tokens; `saved`, share of recompute time; blocks `evicted`."""

    trace: str
    policy: str
    pool_tokens: int
    hit_rate: float
    saved: float
    evicted: int


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        for line in file:
            yield json.loads(line)


def conversations(path: Path) -> list[Prompt]:
    return [(NamespaceSeed(0), pack_tokens(request["hash_ids"])) for request in lines(path)]


def agents(path: Path) -> list[Prompt]:
    """Sessions start one after the other; their requests come in the order of time."""
    requests: list[tuple[float, int, bytes]] = []
    for number, session in enumerate(lines(path)):
        ids: list[int] = []
        for row in session["requests"]:
            request = dict(zip(session["fields"], row, strict=True))
            ids = ids[: request["keep_prev_prefix"]] + request["new_hash_ids"]
            at = number * SESSION_GAP_SECONDS + request["t"]
            requests.append((at, number, pack_tokens(ids)))
    requests.sort(key=lambda request: request[0])
    return [(NamespaceSeed(number), packed) for _, number, packed in requests]


TRACES = {
    "mooncake conversations": Trace(
        "mooncake_conversation.jsonl.gz", 512, (2_000, 6_000, 20_000, 60_000), conversations
    ),
    "agentic coding": Trace(
        "agentic_coding.sessions.jsonl.gz", 64, (30_000, 60_000, 100_000, 200_000), agents
    ),
}


def seconds(blocks: int, block_tokens: int) -> float:
    """Time to compute a prompt, in units of one token without context."""
    tokens = blocks * block_tokens
    return tokens * (1 + tokens / 2 / CostAware.ATTENTION_TOKENS)


def replay(name: str, policy: str, size: int, prompts: list[Prompt]) -> Result:
    trace = TRACES[name]
    # NOTE: a "token" of this pool is an id of the trace, which stands for many.
    memory = MemoryPolicy(eviction=lambda _: POLICIES[policy](trace.block_tokens))
    manager = KVManager(size, 1, STRIDE, KvEvents(nullcontext()), memory)
    cached = asked = saved = cost = 0.0
    for seed, packed in prompts:
        length = len(packed) // TOKEN_BYTES
        asked += length
        cost += seconds(length, trace.block_tokens)
        if length > manager.max_tokens:
            continue
        tokens = Tokens(seed, STRIDE)
        tokens.extend(packed)
        kv = manager.open(tokens, length)
        assert kv, "a sequence alone always fits"
        cached += kv.cached
        saved += seconds(kv.cached, trace.block_tokens)
        manager.commit(kv, tokens, length)
        manager.close(kv)
    manager.check_integrity()
    evicted = manager.stats().evicted_blocks
    pool_tokens = size * trace.block_tokens
    return Result(name, policy, pool_tokens, cached / asked, saved / cost, evicted)


def main() -> None:
    parser = argparse.ArgumentParser(description="Replay public traces with each eviction policy.")
    parser.add_argument("traces", nargs="?", type=Path, default=DATA)
    folder = parser.parse_args().traces
    results: list[Result] = []
    skipped: list[str] = []
    for name, trace in TRACES.items():
        path = folder / trace.file
        if not path.exists():
            skipped.append(f"{name}: no {path}")
            continue
        prompts = trace.read(path)
        results += [
            replay(name, policy, size, prompts) for size in trace.sizes for policy in POLICIES
        ]
    summary = {
        "skipped": skipped,
        "wins": wins(results),
        "raw": [asdict(result) for result in results],
    }
    json.dump(summary, sys.stdout, indent=2)
    print()


def wins(results: list[Result]) -> list[dict[str, Any]]:
    """What each policy gains over lru, in points, for each trace and size."""
    base = {(each.trace, each.pool_tokens): each for each in results if each.policy == "lru"}
    return [
        {
            "trace": each.trace,
            "pool_tokens": each.pool_tokens,
            "policy": each.policy,
            "hit_rate_points": round(100 * (each.hit_rate - lru.hit_rate), 2),
            "saved_points": round(100 * (each.saved - lru.saved), 2),
        }
        for each in results
        if (lru := base[each.trace, each.pool_tokens]) is not each
    ]


if __name__ == "__main__":
    main()
