"""Who is doubted and who is not, over long times that the test makes pass."""

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from radixgate.prefix import PrefixHash

from gateway.fleet.trust import Trust
from gateway.fleet.worker import Life
from gateway.route.outcome import Outcome, Promise
from gateway.route.record import BROKEN, FIRST_PAUSE, GRACE, LONGEST_PAUSE, MEMORY, Records

LIFE = Life("m", "a", 1)
PROMISED = 1024


def promised(tokens: int, made_at: float) -> Promise:
    return Promise(LIFE, tokens, tokens, PrefixHash(1), tokens, 0, 0, True, made_at)


def book(records: Records, tokens: int, kept: int, made_at: float, now: float) -> bool:
    """A request with a promise, of which so much was kept; whether that made a doubt."""
    before = records.doubt(LIFE)
    records.book(Outcome(promised(tokens, made_at), kept), now)
    return before is None and records.doubt(LIFE) is not None


class Course(NamedTuple):
    """What happened: when doubts began, snapshots that were asked for, seconds in doubt."""

    doubts: list[float]
    asks: int
    in_doubt: float


def serve(
    records: Records,
    cached: Callable[[float], int],
    *,
    start: float = 0.0,
    seconds: float,
    every: float = 1.0,
    avoided: bool = False,
    snapshots: bool = True,
) -> Course:
    """A request each so many seconds; snapshots come half a second after they are asked for.

    `avoided`: while in doubt the worker gets no requests.
    """
    doubts, asks, in_doubt, coming = [], 0, 0.0, float("inf")
    next_request = start
    for tick in range(round(seconds / 0.25)):
        now = start + tick * 0.25
        asked = len(records.due(now))
        asks += asked
        if asked and snapshots:
            coming = now + 0.5
        if now >= coming:
            records.replaced(LIFE, now)
            coming = float("inf")
        doubted = records.doubt(LIFE) is not None
        in_doubt += 0.25 * doubted
        if now >= next_request:
            next_request += every
            if not (doubted and avoided) and book(records, PROMISED, cached(now), now, now):
                doubts.append(now)
    return Course(doubts, asks, in_doubt)


def nothing(_: float) -> int:
    return 0


def everything(_: float) -> int:
    return PROMISED


def make_doubted(records: Records, now: float = 0.0) -> int:
    """Break promises until they make a doubt; how many."""
    broken = 1
    while not book(records, PROMISED, 0, now, now):
        broken += 1
    return broken


def test_a_liar_is_doubted_and_discounted_within_a_few_requests() -> None:
    records = Records()
    assert make_doubted(records) == 4
    belief = records.doubt(LIFE)
    assert belief is not None
    assert (belief.trust, belief.weight) == (Trust.SUSPECT, 0.0)
    assert "prompt tokens that it promised lately 0 were there; a snapshot is aw" in belief.reason
    assert records.due(0.0) == []
    (ask,) = records.due(GRACE)
    assert ask.life == LIFE
    assert records.due(GRACE) == []


def test_half_lies_are_found_within_twenty_requests_on_average() -> None:
    chance = random.Random(1)
    found = []
    for _ in range(200):
        records, requests = Records(), 1
        while not book(records, PROMISED, chance.choice([0, PROMISED]), 0.0, 0.0):
            requests += 1
        found.append(requests)
    assert sum(found) / len(found) < 20


@given(st.lists(st.tuples(st.integers(1, 64), st.floats(BROKEN + 0.01, 1)), min_size=1))
def test_small_shortfalls_are_no_reason_for_doubt(requests: list[tuple[int, float]]) -> None:
    records = Records()
    for strides, share in requests:
        kept = 1 - (1 - share) / 2  # less than a third is missing
        assert not book(records, 64 * strides, round(64 * strides * kept), 0.0, 0.0)


@pytest.mark.parametrize("seed", range(20))
def test_rare_losses_are_no_reason_for_doubt(seed: int) -> None:
    chance = random.Random(seed)
    records = Records()
    course = serve(
        records, lambda _: 0 if chance.random() < 0.03 else PROMISED, seconds=1000, every=1.0
    )
    assert course.doubts == []


def test_one_large_loss_is_no_reason_for_doubt() -> None:
    records = Records()
    for _ in range(3):
        assert not book(records, 64, 64, 0.0, 0.0)
    assert not book(records, 32_768, 0, 0.0, 0.0)
    assert records.kept(LIFE) < BROKEN


@pytest.mark.parametrize("avoided", [False, True])
def test_a_lie_that_a_snapshot_repairs_is_forgiven(avoided: bool) -> None:
    records = Records()
    make_doubted(records)
    course = serve(records, everything, seconds=100, avoided=avoided)
    assert course == Course([], asks=1, in_doubt=course.in_doubt)
    assert 0 < course.in_doubt <= FIRST_PAUSE + 1
    later = serve(records, nothing, start=100, seconds=20, avoided=avoided)
    assert 100 < later.doubts[0] < 110


def test_a_worker_that_nobody_asks_is_believed_again() -> None:
    records = Records()
    make_doubted(records)
    course = serve(records, nothing, start=0.0, seconds=60, every=1000.0, avoided=True)
    assert course.asks == 1
    assert records.doubt(LIFE) is None


def test_a_worker_that_keeps_its_promises_need_not_wait() -> None:
    records = Records()
    make_doubted(records)
    kept = 0
    while records.doubt(LIFE):
        book(records, PROMISED, PROMISED, 0.0, 0.0)
        kept += 1
    assert kept == 15


def test_after_a_doubt_two_broken_promises_are_enough_and_in_the_end_the_record_is_clear() -> None:
    records = Records()
    make_doubted(records)
    records.replaced(LIFE, 1.0)
    records.due(FIRST_PAUSE)
    assert [book(records, PROMISED, 0, 6.0, 6.0) for _ in range(2)] == [False, True]
    records.replaced(LIFE, 7.0)
    records.due(6.0 + FIRST_PAUSE)
    assert records.doubt(LIFE) is not None, "the second doubt lasts twice as long"
    records.due(6.0 + 2 * FIRST_PAUSE)
    assert records.doubt(LIFE) is None
    for _ in range(2 * MEMORY):
        book(records, PROMISED, PROMISED, 20.0, 20.0)
    make_doubted(records, 20.0)
    records.replaced(LIFE, 20.0)
    records.due(20.0 + FIRST_PAUSE)
    assert records.doubt(LIFE) is None, "as long as the first one"


@pytest.mark.parametrize(("promised", "times"), [(64 * PROMISED, MEMORY // 2), (64, MEMORY - 1)])
def test_neither_few_large_promises_nor_many_small_ones_end_a_doubt(
    promised: int, times: int
) -> None:
    records = Records()
    make_doubted(records)
    for _ in range(times):
        book(records, promised, promised, 1.0, 1.0)
    assert records.doubt(LIFE) is not None


def test_a_lie_that_goes_on_is_tried_ever_more_rarely() -> None:
    """Each time that costs two requests, and the next doubt lasts twice as long."""
    records = Records()
    hour = serve(records, nothing, seconds=3600, avoided=True)
    assert len(hour.doubts) <= 18
    assert hour.in_doubt > 3500
    assert hour.asks == len(hour.doubts)
    gaps = [later - earlier for earlier, later in zip(hour.doubts, hour.doubts[1:], strict=False)]
    assert gaps == sorted(gaps)
    assert LONGEST_PAUSE <= gaps[-1] <= LONGEST_PAUSE + 5


def test_a_lie_that_goes_on_under_traffic_does_not_end_the_doubt() -> None:
    records = Records()
    course = serve(records, nothing, seconds=600)
    assert len(course.doubts) == course.asks == 1
    assert records.doubt(LIFE) is not None


def test_without_a_snapshot_it_is_asked_for_again_and_the_doubt_stays() -> None:
    records = Records()
    course = serve(records, nothing, seconds=60, avoided=True, snapshots=False)
    assert len(course.doubts) == 1
    assert course.asks == pytest.approx(60 / FIRST_PAUSE, abs=2)
    assert records.doubt(LIFE) is not None


def test_what_was_promised_before_the_snapshot_does_not_prolong_the_doubt() -> None:
    records = Records()
    make_doubted(records)
    records.replaced(LIFE, 1.0)
    book(records, PROMISED, 0, 0.5, 4.0)
    records.due(FIRST_PAUSE)
    assert records.doubt(LIFE) is None


def test_what_was_promised_after_the_snapshot_does() -> None:
    records = Records()
    make_doubted(records)
    records.replaced(LIFE, 1.0)
    belief = records.doubt(LIFE)
    assert belief is not None
    assert "has to prove itself" in belief.reason
    assert records.due(GRACE) == [], "what has come need not be asked for"
    book(records, PROMISED, 0, 2.0, 4.0)
    records.due(FIRST_PAUSE)
    assert records.doubt(LIFE) is not None
    records.due(4.0 + FIRST_PAUSE)
    assert records.doubt(LIFE) is None


@pytest.mark.parametrize("late", [False, True])
def test_a_doubt_whose_reason_is_withdrawn_ends(late: bool) -> None:
    records = Records()
    outcomes = [Outcome(promised(PROMISED, 0.0), 0) for _ in range(4)]
    for outcome in outcomes:
        records.book(outcome, 0.0)
    assert records.doubt(LIFE) is not None
    asks = len(records.due(GRACE if late else GRACE / 2))
    for outcome in outcomes:
        outcome.promise.withdrawn = True
    asks += len(records.due(GRACE + 0.1))
    assert (asks, records.doubt(LIFE), records.kept(LIFE)) == (int(late), None, 1.0)
    make_doubted(records, 10.0)
    records.replaced(LIFE, 10.0)
    records.due(10.0 + FIRST_PAUSE)
    assert (records.doubt(LIFE) is None) is not late, "what was asked for in vain counts as a doubt"


def test_the_record_of_a_life_ends_with_it() -> None:
    records = Records()
    make_doubted(records)
    records.keep({LIFE})
    assert records.doubt(LIFE) is not None
    assert records.doubt(LIFE._replace(epoch=2)) is None
    records.keep({LIFE._replace(epoch=2)})
    assert records.doubt(LIFE) is None
    assert records.due(100.0) == []
