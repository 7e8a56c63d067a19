"""A worker that has just come: misses at once, hot prefixes when it pays, and no cold cliff.

It holds nothing and has measured nothing. The pool's other worker holds the prefix.
"""

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fleet.trust import SyncState
from gateway.fleet.worker import FleetWorker
from gateway.route.cost import COST
from gateway.route.router import Prompt, Router
from gateway.summary.outbox import Outbox
from tests.route.test_router import make_prompt, make_worker

PREFIX, OWN = 4096, 20
RATE = 2.0  # Tokens per ms.
ids = count(10_000)


def sibling() -> Prompt:
    """The hot prefix and something of its own."""
    own = next(ids) * OWN
    return make_prompt(range(PREFIX), range(own, own + OWN))


def stranger(tokens: int = 640) -> Prompt:
    first = next(ids) * 1000
    return make_prompt(range(first, first + tokens))


def cold(state: SyncState = SyncState.SYNCED) -> FleetWorker:
    return make_worker("cold", state, prefill_tokens_per_second=0)


def warm(backlog_tokens: int = 0, **load: float) -> FleetWorker:
    """It has less room than one that has just come."""
    measured = {"prefill_tokens_per_second": 1000 * RATE, "free_blocks": 500} | load
    return make_worker("warm", backlog_tokens=backlog_tokens, **measured)


@pytest.fixture
def router() -> Router:
    """Of a pool in which `warm` holds the prefix."""
    return holding()


def holding() -> Router:
    router = Router(Outbox("here"))
    router.stored("warm", sibling().boundaries[: PREFIX // 64])
    return router


def send(router: Router, prompt: Prompt, *fleet: FleetWorker) -> str:
    """Choose and reserve."""
    best = router.estimate(prompt, fleet, 1.0)[0]
    router.reserve(prompt, best, 1.0)
    return best.worker.id


@pytest.mark.parametrize("state", [SyncState.JOINING, SyncState.SYNCED])
def test_it_gets_misses_at_once(router: Router, state: SyncState) -> None:
    assert send(router, stranger(), warm(), cold(state)) == "cold"
    router.reported("cold")
    assert send(router, stranger(), warm(backlog_tokens=1), cold(state)) == "cold"


def test_it_gets_half_of_the_misses_when_both_are_idle(router: Router) -> None:
    chosen = [send(router, stranger(), warm(), cold()) for _ in range(40)]
    # NOTE: where both cost the same, the one with more room is taken.
    assert chosen.count("cold") in (20, 21)


@pytest.mark.parametrize(("share", "chosen"), [(0.65, "slow"), (0.5, "warm")])
def test_a_slower_one_is_left_alone_only_where_it_takes_much_longer(
    router: Router, share: float, chosen: str
) -> None:
    slow = make_worker("slow", prefill_tokens_per_second=1000 * RATE * share)
    # NOTE: both are idle, and the slower one has more room, which is there to be used.
    assert send(router, stranger(), warm(), slow) == chosen


@given(backlog=st.integers(0, 8 * PREFIX))
def test_it_gets_the_hot_prefix_exactly_when_waiting_costs_more(backlog: int) -> None:
    weighed = 1 + COST.delays(0.5 if backlog else 0)
    waiting = (backlog + weighed * OWN) / RATE
    recomputing = weighed * (PREFIX + OWN) / RATE
    spills = waiting > COST.tie_limit_ms(recomputing)
    chosen = send(holding(), sibling(), warm(backlog), cold())
    assert chosen == ("cold" if spills else "warm")


def test_it_gets_it_when_all_slots_of_the_warm_one_are_taken_for_longer(router: Router) -> None:
    for waiting, chosen in ((1, "warm"), (50, "cold")):
        full = warm(running=8, max_running=8, waiting=waiting, itl_ms=30)
        assert send(router, sibling(), full, cold()) == chosen


def test_a_burst_of_siblings_is_not_thrown_at_it(router: Router) -> None:
    """A hundred at once, with 20 tokens each of their own: together half of the prefix."""
    assert {send(router, sibling(), warm(), cold()) for _ in range(100)} == {"warm"}


def test_once_it_pays_both_take_their_share_and_nobody_waits_longer_for_it(
    router: Router,
) -> None:
    """The warm one is behind by as much as the prefix takes six times, and 200 siblings come."""
    behind, fleet = 6 * PREFIX, (warm(6 * PREFIX), cold())
    delays, chosen = [], []
    for _ in range(200):
        prompt = sibling()
        best = router.estimate(prompt, fleet, 1.0)[0]
        router.reserve(prompt, best, 1.0)
        chosen.append(best.worker.id)
        delays.append(best.total_ms)
    assert chosen[0] == "cold"
    alone = [(behind + OWN * at) / RATE for at in range(1, 201)]
    assert all(
        delay <= waits * (1 + COST.tie_ratio) for delay, waits in zip(delays, alone, strict=True)
    )
    # The prefix was computed once, and what is left of the lead is shared out.
    assert delays[0] == (PREFIX + OWN) / RATE
    sure = min(200, (behind - PREFIX) // OWN // 2)
    assert chosen[:sure] == ["cold"] * sure
    assert max(delays) <= (behind + 200 * OWN) / RATE


def test_its_first_slow_steps_keep_misses_from_it_only_as_far_as_they_are_slow(
    router: Router,
) -> None:
    """Until it has warmed up it may measure less than the others, and is still no worse than them
    when these have so much to do.
    """
    slow = make_worker("cold", prefill_tokens_per_second=500 * RATE)
    assert send(router, stranger(640), warm(), slow) == "warm"
    router.reported("warm")
    assert send(router, stranger(640), warm(backlog_tokens=4000), slow) == "cold"
