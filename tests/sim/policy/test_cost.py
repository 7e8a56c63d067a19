"""Our own policy: it decides as a gateway does, and each ablation differs in what it leaves out."""

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from radixgate.digest import SetDigest

from gateway.route.record import FIRST_PAUSE, GRACE, LIMIT
from sim.policy.base import Choice, Job, Site
from sim.policy.catalogue import CATALOGUE
from sim.policy.cost import Cost
from tests.sim.policy.site import STRIDE, change, prompt_of
from tests.sim.policy.timed_site import BLOCKS, SLOTS, Pool
from worker.kv.events import Change, Reason

LONG = "abcdefghij" * 20
OURS = sorted(name for name in CATALOGUE if name.startswith("cost"))
PLACES = SLOTS + 1
"""At each worker, with what it may have waiting."""


def pool_of(name: str, workers: int = 2) -> Pool:
    return Pool(CATALOGUE[name].make, workers)


def holding(name: str = "cost") -> Pool:
    """`w0` holds the long prompt; `w1` is like it, and holds nothing."""
    pool = pool_of(name)
    pool.policy.changed("w0", change(stored=prompt_of(LONG).boundaries))
    return pool


def filled(pool: Pool) -> list[Job]:
    """As many requests as all workers take."""
    jobs = [pool.ask(chr(1000 + number)) for number in range(PLACES * len(pool.site.places))]
    assert all(map(pool.worker, jobs))
    return jobs


def test_a_request_goes_where_its_prefix_is_held_and_says_what_is_promised() -> None:
    pool = holding()
    assert pool.site.sent[pool.ask(LONG)] == Choice("w0", len(LONG) * STRIDE)
    boundaries = prompt_of(LONG).boundaries
    pool.policy.changed("w0", change(evicted=boundaries[150:]))
    pool.policy.changed("w0", Change(2, [], {Reason.CLEARED: boundaries[50:150]}, SetDigest()))
    assert pool.site.sent[pool.ask(LONG)] == Choice("w0", 50 * STRIDE)


def test_siblings_of_what_is_on_its_way_follow_it_and_nothing_is_promised_yet() -> None:
    pool = pool_of("cost", 4)
    jobs = [pool.ask(LONG, extra) for extra in range(1, STRIDE)]
    assert len(set(map(pool.worker, jobs))) == 1
    assert all(pool.site.sent[job].expected_tokens == 0 for job in jobs)


@pytest.mark.parametrize(("name", "workers"), [("cost", 4), ("cost-reservations", 1)])
def test_what_was_just_sent_counts_as_load(name: str, workers: int) -> None:
    """They begin alike, so that among equals they prefer the same worker."""
    pool = pool_of(name, 4)
    jobs = [pool.ask("a" + chr(1000 + number) * 20) for number in range(4)]
    assert len(set(map(pool.worker, jobs))) == workers


@pytest.mark.parametrize("computed", [False, True])
def test_what_was_sent_counts_until_it_is_computed_or_reported(computed: bool) -> None:
    pool = pool_of("cost")
    first = pool.ask("a" + "b" * 20)
    second = pool.ask("a" + "c" * 20)
    assert pool.worker(second) != pool.worker(first)
    pool.end(second)
    if computed:
        pool.start(first)
    else:
        pool.report(pool.worker(first))
    assert pool.worker(pool.ask("a" + "d" * 20)) == pool.worker(first)


def test_what_a_worker_reports_counts_until_its_next_report() -> None:
    pool = holding()
    pool.report("w0", backlog_tokens=10_000)
    assert pool.worker(pool.ask(LONG)) == "w1"
    pool.report("w0")
    assert pool.worker(pool.ask(LONG)) == "w0"


@pytest.mark.parametrize(("name", "worker"), [("cost", "w1"), ("cost-load", "w0")])
def test_without_load_a_prefix_is_waited_for_however_long(name: str, worker: str) -> None:
    pool = holding(name)
    pool.report("w0", backlog_tokens=10_000)
    assert pool.worker(pool.ask(LONG)) == worker


@pytest.mark.parametrize(("name", "worker"), [("cost", "w1"), ("cost-evict", "w0")])
def test_without_evict_what_must_go_does_not_matter(name: str, worker: str) -> None:
    pool = pool_of(name)
    pool.report("w0", prefill_tokens_per_second=2000, free_blocks=0, regret_ms_per_block=10)
    assert pool.worker(pool.ask(LONG)) == worker


@pytest.mark.parametrize(("name", "worker"), [("cost", "w1"), ("cost-interfere", "w0")])
def test_without_interfere_who_runs_there_does_not_matter(name: str, worker: str) -> None:
    pool = pool_of(name)
    pool.report("w0", running=SLOTS - 1)
    pool.report("w1", backlog_tokens=10)
    assert pool.worker(pool.ask(LONG)) == worker


@pytest.mark.parametrize("by_report", [False, True])
def test_when_all_places_are_taken_a_request_waits_for_one(by_report: bool) -> None:
    pool = pool_of("cost")
    running = filled(pool)
    late, urgent = pool.ask("late"), pool.ask("urgent", priority=1)
    pool.site.pass_time(100.0)
    assert not pool.worker(late)
    assert not pool.worker(urgent)
    pool.end(running[0])
    assert pool.worker(urgent)
    assert not pool.worker(late)
    if by_report:
        pool.report("w0", running=1)
    else:
        pool.end(urgent)
    assert pool.worker(late)
    pool.site.pass_time(1.0)
    assert pool.site.idle


def test_whoever_waits_too_long_or_is_too_many_is_refused_if_that_is_limited() -> None:
    pool = Pool(partial(Cost, queue_seconds=5.0, queue_limit=1))
    filled(pool)
    first, second = pool.ask("first"), pool.ask("second")
    assert pool.site.refused == {second: "full"}
    pool.site.pass_time(4.9)
    assert first not in pool.site.refused
    pool.site.pass_time(0.2)
    assert pool.site.refused[first] == "expired"


def test_a_backlog_is_as_long_as_it_may_be() -> None:
    for seconds, sent in ((1, 3), (2, 5)):
        pool = Pool(partial(Cost, backlog_ms=1000.0 * seconds), 1)
        jobs = [pool.ask(chr(1000 + number) * 100) for number in range(12)]
        assert sum(map(bool, map(pool.worker, jobs))) == sent


def test_who_is_mostly_held_does_not_wait_for_backlogs_if_there_is_a_place_where_it_is() -> None:
    pool = holding()
    for worker in ("w0", "w1"):
        pool.report(worker, backlog_tokens=100_000, prefill_tokens_per_second=1000)
    assert not pool.worker(pool.ask("new" * 20))
    assert pool.worker(pool.ask(LONG, 1)) == "w0"
    pool.report("w0", running=SLOTS, waiting=1, prefill_tokens_per_second=1000)
    pool.report("w1", backlog_tokens=100_000, prefill_tokens_per_second=1000)
    assert not pool.worker(pool.ask(LONG, 2))


def test_a_prompt_that_no_worker_can_hold_is_refused() -> None:
    pool = pool_of("cost")
    most = BLOCKS * 2 // STRIDE
    fits, too_long = pool.ask("a" * (most - 1), STRIDE - 1), pool.ask("b" * most, 0)
    assert pool.worker(fits)
    assert list(pool.site.refused) == [too_long]


def test_a_worker_that_breaks_its_promises_is_avoided_for_a_while() -> None:
    pool = holding()
    pool.report("w0", free_blocks=BLOCKS - 1)
    for _ in range(LIMIT):
        job = pool.ask(LONG)
        assert pool.worker(job) == "w0"
        pool.start(job, cached_tokens=0)
        pool.end(job)
    job = pool.ask(LONG)
    assert pool.worker(job) == "w1"
    pool.end(job)
    pool.site.pass_time(FIRST_PAUSE + GRACE)
    assert pool.site.idle
    assert pool.worker(pool.ask(LONG)) == "w0"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.text("ab", max_size=6), st.integers(-1, 1)),
        st.tuples(st.just("start"), st.integers(0, 30), st.integers(0, 20)),
        st.tuples(st.just("end"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("report"), st.integers(0, 2), st.integers(0, 2 * SLOTS)),
        st.tuples(st.just("wait"), st.just(0), st.integers(0, 30)),
    ),
    max_size=60,
)


class Play:
    """What happens at three workers, and what must hold then."""

    def __init__(self, make: Callable[[Site], Cost]) -> None:
        self.pool = Pool(make, 3)
        self.started: set[Job] = set()
        self.ended: set[Job] = set()

    def running(self) -> list[Job]:
        return [job for job in self.pool.site.sent if job not in self.ended]

    def step(self, what: str, at: str | int, value: int) -> None:
        pool = self.pool
        running = self.running()
        if what == "ask" and isinstance(at, str):
            pool.ask(at * 5, priority=value, tenant=at[:1])
        elif what == "report":
            pool.report(f"w{at}", running=min(value, SLOTS), waiting=max(0, value - SLOTS))
        elif what == "wait":
            pool.site.pass_time(value / 10)
        elif running and isinstance(at, int):
            job = running[at % len(running)]
            if job not in self.started:
                self.started.add(job)
                pool.start(job, value)
            if what == "end":
                self.ended.add(job)
                pool.end(job)

    def finish(self) -> None:
        """All that runs ends, until nothing is left."""
        for place in self.pool.site.places:
            self.pool.report(place.id)
        while self.running():
            self.step("end", 0, 0)
        self.pool.site.pass_time(1000.0)


@settings(max_examples=60)
@given(steps=STEPS, limited=st.booleans())
@pytest.mark.parametrize("name", OURS)
def test_every_job_is_sent_or_refused_once_and_alike_every_time(
    name: str, steps: list[tuple[str, str | int, int]], limited: bool
) -> None:
    make = (
        partial(CATALOGUE[name].make, queue_seconds=1.0, queue_limit=3)
        if limited
        else CATALOGUE[name].make
    )
    outcomes = []
    for _ in range(2):
        play = Play(make)
        for step in steps:
            play.step(*step)
        play.finish()
        site = play.pool.site
        assert {*site.sent} | {*site.refused} == {*play.pool.jobs}
        assert limited or not site.refused
        assert site.idle
        outcomes.append(
            (
                [(job.number, choice) for job, choice in site.sent.items()],
                [(job.number, why) for job, why in site.refused.items()],
            )
        )
    assert outcomes[0] == outcomes[1]
