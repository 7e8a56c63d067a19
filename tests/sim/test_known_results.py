"""Hit rates that were measured elsewhere, with the routers themselves: they validate the baselines.

Eight workers, 32 requests under way, each of which takes 10 ms, whenever it came; prompts are whole
blocks of 512 tokens, since it was blocks that were counted. What was longest unused was evicted.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from sim.hardware.asked import ENDLESS
from sim.ideal import ideal_cached
from sim.plan import Ask, groups
from sim.request import Trace
from sim.results import Run
from sim.trace.formats import open_trace
from tests.sim.small import played

TRACE = Path(__file__).parents[3] / "shared/data/traces/mooncake_conversation.jsonl.gz"
BLOCK = 512
WITHIN = 1.5
IDEAL = 36.6
KNOWN = {
    ("round_robin", ENDLESS): 13.3,
    ("sglang", ENDLESS): 36.0,
    ("prefix_hash_1k", ENDLESS): 31.4,
    ("round_robin", "4000"): 9.5,
    ("sglang", "4000"): 32.4,
    ("prefix_hash_1k", "4000"): 27.6,
}
MOST_IMBALANCE = 1.11

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not TRACE.exists(), reason=f"{TRACE} is absent"),
]


@cache
def conversation() -> Trace:
    trace = open_trace(TRACE)
    whole = [
        replace(each, prompt=each.prompt._replace(tokens=len(each.prompt.ids) * BLOCK), output=None)
        for each in trace.requests
    ]
    return replace(trace, requests=whole)


def hit_rate(run: Run) -> float:
    return 100 * float(run.requests.cached.sum() / run.requests.prompt_tokens.sum())


def closed_loop(policy: str, blocks: str) -> Run:
    values = {
        "workers": "8", "worker": "h100-llama-8b", "block_size": str(BLOCK), "kv_blocks": blocks,
        "eviction": "lru",
    }  # fmt: skip
    ask = Ask(values, closed_loop=32, service_seconds=0.01)
    (group,) = groups(ask, [conversation()])
    run = played(conversation(), group.setting, policy)
    served = run.workers.requests
    assert served.max() / served.mean() <= MOST_IMBALANCE
    assert not run.refusals
    return run


@pytest.mark.parametrize(("policy", "blocks"), KNOWN)
def test_known_hit_rates_are_met(policy: str, blocks: str) -> None:
    rate = hit_rate(closed_loop(policy, blocks))
    print(f"{policy}, {blocks} blocks: {rate:.1f} %, known {KNOWN[policy, blocks]} %")
    assert rate == pytest.approx(KNOWN[policy, blocks], abs=WITHIN)


@pytest.mark.parametrize("blocks", [ENDLESS, "4000"])
def test_ours_is_above_all_that_is_known(blocks: str) -> None:
    rate = hit_rate(closed_loop("cost", blocks))
    print(f"cost, {blocks} blocks: {rate:.2f} %")
    assert rate > max(known for (_, size), known in KNOWN.items() if size == blocks)


def test_the_known_ceiling_is_met() -> None:
    cached = ideal_cached(conversation(), BLOCK).sum()
    tokens = sum(each.prompt.tokens for each in conversation().requests)
    assert 100 * cached / tokens == pytest.approx(IDEAL, abs=0.05)
