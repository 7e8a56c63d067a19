"""What an eviction policy is worth: public traces replayed on the real tree, without a model.

    .venv/bin/python -m bench.eviction

Each request of a trace is opened, committed and closed, one after the other, in a pool of each size
and with each policy. A block of the trace is a block of the pool. Reported are the share of blocks
found cached, and the share of recompute time saved, where a token costs 1 + context / 16384. The
traces are in `../shared/data/traces`, or in the folder given as argument; without them nothing is
measured, and the JSON says so. Output tokens are not in the traces' ids, so they are not cached.
"""

import argparse
import json
import sys
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from radixgate.namespace import NamespaceSeed
from radixgate.prefix import pack_tokens

from sim.request import Content
from sim.trace.formats import open_trace
from worker.kv.events import KvEvents
from worker.kv.manager import KVManager
from worker.kv.memory import MemoryPolicy
from worker.kv.policy import POLICIES, CostAware
from worker.kv.tokens import Tokens

DATA = Path(__file__).parents[2] / "shared" / "data" / "traces"
STRIDE = 64


@dataclass(frozen=True, slots=True)
class Case:
    """Args: its `file`; pool `sizes` in blocks."""

    file: str
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """Args: `hit_rate` by blocks; `saved`, share of recompute time; blocks `evicted`."""

    trace: str
    policy: str
    pool_tokens: int
    hit_rate: float
    saved: float
    evicted: int


CASES = {
    "mooncake conversations": Case(
        "mooncake_conversation.jsonl.gz", (2_000, 6_000, 20_000, 60_000)
    ),
    "agentic coding": Case("agentic_coding.sessions.jsonl.gz", (30_000, 60_000, 100_000, 200_000)),
}


def seconds(blocks: int, block_tokens: int) -> float:
    """Time to compute a prompt, in units of one token without context."""
    tokens = blocks * block_tokens
    return tokens * (1 + tokens / 2 / CostAware.ATTENTION_TOKENS)


def replay(name: str, policy: str, size: int, prompts: list[Content]) -> Result:
    block_tokens = prompts[0].block_tokens
    # NOTE: a "token" of this pool is an id of the trace, which stands for many.
    memory = MemoryPolicy(eviction=lambda _: POLICIES[policy](block_tokens))
    manager = KVManager(size, 1, STRIDE, KvEvents(nullcontext()), memory)
    cached = asked = saved = cost = 0.0
    for prompt in prompts:
        length = len(prompt.ids)
        asked += length
        cost += seconds(length, block_tokens)
        if length > manager.max_tokens:
            continue
        tokens = Tokens(NamespaceSeed(0), STRIDE)
        tokens.extend(pack_tokens(prompt.ids))
        kv = manager.open(tokens, length)
        assert kv, "a sequence alone always fits"
        cached += kv.cached
        saved += seconds(kv.cached, block_tokens)
        manager.commit(kv, tokens, length)
        manager.close(kv)
    manager.check_integrity()
    evicted = manager.stats().evicted_blocks
    return Result(name, policy, size * block_tokens, cached / asked, saved / cost, evicted)


def main() -> None:
    parser = argparse.ArgumentParser(description="Replay public traces with each eviction policy.")
    parser.add_argument("traces", nargs="?", type=Path, default=DATA)
    folder = parser.parse_args().traces
    results: list[Result] = []
    skipped: list[str] = []
    for name, case in CASES.items():
        path = folder / case.file
        if not path.exists():
            skipped.append(f"{name}: no {path}")
            continue
        prompts = [request.prompt for request in open_trace(path).requests]
        results += [
            replay(name, policy, size, prompts) for size in case.sizes for policy in POLICIES
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
