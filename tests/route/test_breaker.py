"""Circuits: who is left alone, for how long, and that nobody is never the answer."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fleet.worker import FleetWorker
from gateway.route.breaker import FIRST_PAUSE, LONGEST_PAUSE, MEMORY, THRESHOLD, Breakers
from gateway.summary.events import Registration


def worker(name: str, epoch: int = 1) -> FleetWorker:
    registration = Registration(name, epoch, f"{name}:1", "m", "f", 16, 64, 1000)
    return FleetWorker(registration, lease=5.0, heard_at=0.0, deadline=5.0)


A, B, C = worker("a"), worker("b"), worker("c")


def breakers(jitter: float = 1.0) -> Breakers:
    """Whose pauses are whole; a jitter of 0 halves them."""
    return Breakers(lambda: jitter)


def fail(these: Breakers, worker: FleetWorker, now: float, times: int = THRESHOLD) -> bool:
    return [these.failed(worker.life, "why", now) for _ in range(times)][-1]


def test_failures_in_a_row_open_it_and_a_success_between_them_does_not() -> None:
    these = breakers()
    assert not fail(these, A, 0.0, THRESHOLD - 1)
    these.succeeded(A.life)
    assert not fail(these, A, 0.0, THRESHOLD - 1)
    assert these.allowed([A, B], 0.0) == [A, B]
    assert these.reason(A.life, 0.0) == ""
    assert fail(these, A, 0.0, 1)
    assert these.allowed([A, B], 0.0) == [B]
    assert "failed 3 times in a row" in these.reason(A.life, 0.0)
    assert "why" in these.reason(A.life, 0.0)
    assert these.reason(B.life, 0.0) == ""


def test_one_probe_at_a_time() -> None:
    these = breakers()
    fail(these, A, 0.0)
    assert these.allowed([A, B], FIRST_PAUSE - 0.01) == [B]
    assert these.allowed([A, B], FIRST_PAUSE) == [A, B]
    these.sent(A.life, FIRST_PAUSE)
    assert these.allowed([A, B], FIRST_PAUSE) == [B]
    # A probe of which nothing is heard is not waited for longer than the pause.
    assert these.allowed([A, B], 2 * FIRST_PAUSE) == [A, B]


def test_pauses_grow_to_a_bound_and_start_anew_after_a_success() -> None:
    these = breakers()
    fail(these, A, 0.0)
    now, pauses = 0.0, []
    for _ in range(9):
        began = now
        while these.allowed([A, B], now) == [B]:
            now += FIRST_PAUSE / 2
        pauses.append(now - began)
        these.sent(A.life, now)
        assert not these.failed(A.life, "why", now)
    assert pauses[:4] == [1, 2, 4, 8]
    assert pauses[-1] == LONGEST_PAUSE
    these.succeeded(A.life)
    fail(these, A, now)
    assert these.allowed([A, B], now + FIRST_PAUSE) == [A, B]


def test_jitter_halves_a_pause_at_most() -> None:
    these = breakers(jitter=0.0)
    fail(these, A, 0.0)
    assert these.allowed([A, B], FIRST_PAUSE / 2) == [A, B]
    assert these.allowed([A, B], FIRST_PAUSE / 2 - 0.01) == [B]


def test_what_was_under_way_when_it_opened_is_no_failed_probe() -> None:
    these = breakers()
    fail(these, A, 0.0, times=50)
    assert these.allowed([A, B], FIRST_PAUSE) == [A, B]


def test_first_tokens_close_it_until_the_next_failure() -> None:
    these = breakers()
    fail(these, A, 0.0)
    these.sent(A.life, FIRST_PAUSE)
    these.answered(A.life)
    assert these.allowed([A, B], FIRST_PAUSE) == [A, B]
    assert these.failed(A.life, "again", FIRST_PAUSE)
    assert these.allowed([A, B], 2 * FIRST_PAUSE) == [B]
    assert these.allowed([A, B], 3 * FIRST_PAUSE) == [A, B]


def test_first_tokens_of_a_healthy_worker_do_not_excuse_it() -> None:
    these = breakers()
    for _ in range(THRESHOLD):
        assert these.allowed([A, B], 0.0) == [A, B]
        these.sent(A.life, 0.0)
        these.answered(A.life)
        these.failed(A.life, "in mid-stream", 0.0)
    assert these.allowed([A, B], 0.0) == [B]


def test_of_open_ones_the_one_that_failed_longest_ago_is_tried() -> None:
    these = breakers()
    fail(these, B, 0.0)
    fail(these, A, 0.1)
    fail(these, C, 0.2)
    assert these.allowed([A, B, C], 0.3) == [B]
    these.failed(B.life, "still", 0.3)
    assert these.allowed([A, B, C], 0.3) == [A]
    assert these.allowed([A, C], 0.3) == [A]
    assert these.allowed([], 0.3) == []


def test_the_next_life_of_a_worker_starts_afresh() -> None:
    these = breakers()
    fail(these, A, 0.0)
    again = worker("a", epoch=2)
    assert these.allowed([again, B], 0.0) == [again, B]


def test_the_dead_are_forgotten() -> None:
    these = breakers()
    for epoch in range(100):
        fail(these, worker("a", epoch), epoch * MEMORY)
    assert len(these._circuits) <= 2


class Event(NamedTuple):
    kind: str
    name: str
    after: float


class Slow:
    """The rules, by looking through all that has happened to one worker."""

    def __init__(self) -> None:
        self.happened: list[tuple[str, float]] = []

    def open_until(self) -> float | None:
        """When it is probed; None while it is closed. With whole pauses."""
        row, is_open, probing, pause, until = 0, False, False, 0.0, 0.0
        for kind, now in self.happened:
            match kind:
                case "succeeded":
                    row, is_open, probing, pause = 0, False, False, 0.0
                case "answered" if is_open:
                    row, is_open, probing = THRESHOLD - 1, False, False
                case "sent" if is_open and now >= until:
                    probing, until = True, now + pause
                case "failed":
                    row += 1
                    if probing or (not is_open and row >= THRESHOLD):
                        pause = min(max(1.0, pause * 2), LONGEST_PAUSE)
                        is_open, probing, until = True, False, now + pause
        return until if is_open else None


kinds = st.sampled_from(["failed", "failed", "failed", "sent", "answered", "succeeded"])


@given(
    st.lists(
        st.builds(Event, kinds, st.sampled_from("ab"), st.sampled_from([0.0, 0.5, 1.0, 3.0])),
        max_size=60,
    )
)
def test_any_history_is_judged_as_by_the_slow_rules(events: list[Event]) -> None:
    these, now = breakers(), 0.0
    workers = {"a": A, "b": B}
    slow = {name: Slow() for name in workers}
    for event in events:
        now += event.after
        life = workers[event.name].life
        match event.kind:
            case "failed":
                these.failed(life, "why", now)
            case "sent":
                these.sent(life, now)
            case "answered":
                these.answered(life)
            case "succeeded":
                these.succeeded(life)
        slow[event.name].happened.append((event.kind, now))
        for name, one in workers.items():
            until = slow[name].open_until()
            assert bool(these.reason(one.life, now)) == (until is not None)
            expected = [one, C] if until is None or now >= until else [C]
            assert these.allowed([one, C], now) == expected
        assert these.allowed([A, B], now)


@pytest.mark.parametrize("jitter", [0.0, 0.5, 0.999])
def test_a_worker_is_never_left_alone_for_longer_than_the_longest_pause(jitter: float) -> None:
    these, now = breakers(jitter), 0.0
    fail(these, A, now)
    for _ in range(20):
        now += LONGEST_PAUSE
        assert these.allowed([A, B], now) == [A, B]
        these.sent(A.life, now)
        these.failed(A.life, "why", now)
