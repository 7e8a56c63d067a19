"""The admission queue against a plain list of what waits."""

import math
import random
from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.route.admission import (
    CAUTION,
    LONGEST_RETRY_SECONDS,
    RETRY_SECONDS,
    SHORTEST_RETRY_SECONDS,
    TURN_OF_OLDEST,
    AdmissionQueue,
    Reason,
    Shed,
)
from gateway.route.room import Room
from gateway.route.ticket import Ticket
from tests.route.tickets import ticket

WEIGHTS = {"a": 3.0, "b": 1.0, "c": 0.25}
FAR = 1000.0
WIDE = Room(1_000_000, math.inf)


class SlowQueue:
    """The same order from a list and the history of each level since it was last empty."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.waiting: list[Ticket] = []
        self.tags: dict[int, dict[str, float]] = {}
        self.floor: dict[int, float] = {}
        self.entries = 0

    def add(self, new: Ticket) -> None:
        level = self.level(new.priority)
        if not level:
            self.tags[new.priority], self.floor[new.priority] = {}, 0.0
        if not any(each.tenant == new.tenant for each in level):
            tags, floor = self.tags[new.priority], self.floor[new.priority]
            tags[new.tenant] = max(tags.get(new.tenant, 0.0), floor)
        self.waiting.append(new)

    def level(self, priority: int) -> list[Ticket]:
        return [each for each in self.waiting if each.priority == priority]

    def starts(self, priority: int) -> list[tuple[float, float, Ticket]]:
        """When each of a level would be served, by the tag of its tenant."""
        tags, starts = dict(self.tags[priority]), []
        for each in self.level(priority):
            starts.append((tags[each.tenant], each.arrived, each))
            tags[each.tenant] += each.tokens / WEIGHTS[each.tenant]
        return sorted(starts, key=lambda start: start[:2])

    def next(self) -> Ticket:
        if (self.entries + 1) % TURN_OF_OLDEST == 0:
            return self.waiting[0]
        return self.starts(max(each.priority for each in self.waiting))[0][2]

    def lets_pass(self, new: Ticket) -> bool:
        """By the turns, if it were the first of its tenant."""
        if not self.waiting:
            return True
        oldest = (self.entries + 1) % TURN_OF_OLDEST == 0
        if oldest or max(each.priority for each in self.waiting) > new.priority:
            return False
        if not self.level(new.priority):
            self.entries += 1
            return True
        tags, floor = self.tags[new.priority], self.floor[new.priority]
        lowest = min(tags[each.tenant] for each in self.level(new.priority))
        mine = [each for each in self.level(new.priority) if each.tenant == new.tenant]
        tag = tags.get(new.tenant, 0.0)
        if (tag if mine else max(tag, floor)) > lowest:
            return False
        self.add(new)
        self.enter(new)
        return True

    def last(self) -> Ticket:
        return self.starts(min(each.priority for each in self.waiting))[-1][2]

    def enter(self, taken: Ticket) -> None:
        self.entries += 1
        priority = taken.priority
        tags = self.tags[priority]
        self.floor[priority] = min(tags[each.tenant] for each in self.level(priority))
        tags[taken.tenant] += taken.tokens / WEIGHTS[taken.tenant]
        self.waiting.remove(taken)


class AdmissionMachine(RuleBasedStateMachine):
    """Nobody is lost, nothing passes its bound, and turns are those of the slow queue."""

    @initialize(limit=st.integers(0, 6))
    def start(self, limit: int) -> None:
        self.now = 0.0
        self.limit = limit
        self.queue = AdmissionQueue(limit, WEIGHTS.__getitem__)
        self.slow = SlowQueue(limit)
        self.offered: list[Ticket] = []
        self.ends: Counter[Ticket] = Counter()
        self.passed: Counter[Ticket] = Counter()
        self.older: dict[Ticket, int] = {}
        self.services: list[float] = []
        self.staffed = False

    @rule(
        tenant=st.sampled_from("abc"),
        tokens=st.integers(1, 100),
        priority=st.integers(-1, 2),
        patience=st.sampled_from([1.0, 5.0, FAR]),
        seconds=st.sampled_from([2.0, 8.0, FAR, math.inf]),
    )
    def offer(
        self, tenant: str, tokens: int, priority: int, patience: float, seconds: float
    ) -> None:
        self.now += 0.001
        new = ticket(
            tenant,
            tokens,
            priority=priority,
            arrived=self.now,
            latest=self.now + min(patience, seconds),
            deadline=self.now + seconds,
        )
        self.offered.append(new)
        before = [*self.slow.waiting]
        shed = self.queue.offer(new, self.now, staffed=self.staffed)
        if shed is not None and shed.reason is Reason.LATE:
            assert shed.ticket is new
            assert self.staffed
            self.end(shed)
            return
        self.slow.add(new)
        self.older[new] = len(before)
        assert (shed is None) == (len(self.slow.waiting) <= self.limit)
        if shed is not None:
            assert shed.reason is Reason.FULL
            assert shed.ticket is self.slow.last()
            self.slow.waiting.remove(shed.ticket)
            self.end(shed)

    @rule(tenant=st.sampled_from("abc"), tokens=st.integers(1, 100), priority=st.integers(-1, 1))
    def pass_by(self, tenant: str, tokens: int, priority: int) -> None:
        self.now += 0.001
        new = ticket(tenant, tokens, priority=priority, arrived=self.now)
        lets = self.slow.lets_pass(new)
        assert self.queue.lets_pass(new) == lets
        if lets:
            self.passed.update(self.slow.waiting)

    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        assume(self.offered)
        gone = data.draw(st.sampled_from(self.offered))
        self.queue.withdraw(gone)
        if gone in self.slow.waiting:
            self.slow.waiting.remove(gone)
            self.ends[gone] += 1

    @rule(seconds=st.sampled_from([0.0, 0.1, 1.0, 4.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0]))
    def served(self, seconds: float) -> None:
        self.services.append(seconds)
        self.queue.served(seconds)
        assert self.queue.service.seconds <= max(self.services)
        assert self.queue.service.seconds >= min(self.services)

    @rule(requests=st.integers(-1, 4), tokens=st.sampled_from([0.0, 30.0, 1e9]))
    def move(self, requests: int, tokens: float) -> None:
        self.staffed = True
        moved = self.queue.move(self.now, Room(requests, tokens))
        service = self.queue.service.seconds * CAUTION
        self.sheds_the_late(moved.shed, service)
        room = Room(requests, tokens)
        for taken in moved.entered:
            assert room.takes(taken.priority)
            assert taken.latest > self.now
            assert taken.deadline >= self.now + service
            assert taken is self.slow.next()
            for other in self.slow.waiting:
                self.passed[other] += 1
            self.slow.enter(taken)
            self.ends[taken] += 1
            room = room.after(taken.tokens)
        assert not self.slow.waiting or not room.takes(self.slow.next().priority)

    @rule()
    def move_without_workers(self) -> None:
        self.staffed = False
        moved = self.queue.move(self.now, None)
        assert moved.entered == []
        self.sheds_the_late(moved.shed, service=0.0)

    def sheds_the_late(self, shed: list[Shed], service: float) -> None:
        late = {
            each: Reason.EXPIRED if each.latest <= self.now else Reason.LATE
            for each in self.slow.waiting
            if each.latest <= self.now or each.deadline - service < self.now
        }
        assert {each.ticket: each.reason for each in shed} == late
        self.slow.waiting = [each for each in self.slow.waiting if each not in late]
        for each in shed:
            self.end(each)

    def end(self, shed: Shed) -> None:
        self.ends[shed.ticket] += 1
        assert SHORTEST_RETRY_SECONDS <= shed.retry_seconds <= LONGEST_RETRY_SECONDS

    @invariant()
    def nobody_is_lost(self) -> None:
        assert len(self.queue) == len(self.slow.waiting) <= self.limit
        for each in self.offered:
            assert self.ends[each] == (each not in self.slow.waiting)

    @invariant()
    def nobody_starves(self) -> None:
        for each in self.slow.waiting:
            assert self.passed[each] < TURN_OF_OLDEST * (self.older[each] + 1)

    @precondition(lambda self: not self.slow.waiting)
    @invariant()
    def nothing_is_left(self) -> None:
        assert self.queue._levels == {}
        assert self.queue.wait_seconds(self.now) == 0


TestAdmission = AdmissionMachine.TestCase


def test_each_is_shed_at_its_own_time_whoever_was_before() -> None:
    queue = AdmissionQueue(100, lambda _: 1.0)
    full = Room(0, 0.0)
    patient = [ticket(latest=float(seconds)) for seconds in (3, 1, 2)]
    hurried = [ticket(latest=FAR, deadline=float(seconds)) for seconds in (6, 4, 5)]
    for each in [*patient, *hurried]:
        queue.offer(each, 0.0)
    expired = [queue.move(float(now), full).shed for now in (0, 1, 2, 3)]
    assert [[each.ticket for each in shed] for shed in expired] == [
        [],
        [patient[1]],
        [patient[2]],
        [patient[0]],
    ]
    late = [queue.move(now, full).shed for now in (4.0, 4.5, 5.5, 6.0, 6.5)]
    assert [[each.ticket for each in shed] for shed in late] == [
        [],
        [hurried[1]],
        [hurried[2]],
        [],
        [hurried[0]],
    ]


@given(
    st.integers(2, 4),
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 1000)), min_size=50, max_size=200),
    st.integers(1, 5),
    st.lists(st.sampled_from("ab"), max_size=100),
)
def test_under_saturation_tenants_share_by_weight(
    ratio: int, arrivals: list[tuple[str, int]], places: int, passing: list[str]
) -> None:
    """Turns of the oldest are paid for, so they put the shares off by one request more.

    Turns of those that pass, one before each other move, are paid for too.
    """
    weights = {"a": float(ratio), "b": 1.0}
    queue = AdmissionQueue(1000, weights.__getitem__)
    left: Counter[str] = Counter()
    for at, (tenant, tokens) in enumerate(arrivals):
        queue.offer(ticket(tenant, tokens, arrived=float(at)), at)
        left[tenant] += 1
    largest = max(tokens for _, tokens in arrivals)
    served: Counter[str] = Counter()
    while len(queue):
        if passing and queue.lets_pass(new := ticket(passing.pop(), largest, arrived=1000.0)):
            served[new.tenant] += new.tokens
        for taken in queue.move(1000.0, Room(places, math.inf)).entered:
            served[taken.tenant] += taken.tokens
            left[taken.tenant] -= 1
            if left["a"] and left["b"]:
                shares = [served[tenant] / weights[tenant] for tenant in "ab"]
                assert abs(shares[0] - shares[1]) <= 2 * largest * (1 + 1 / ratio)


def test_priority_goes_before_weight_and_one_turn_in_16_to_the_oldest() -> None:
    queue = AdmissionQueue(100, lambda _: 1.0)
    humble = [ticket("humble", arrived=float(at)) for at in range(2)]
    urgent = [ticket("urgent", priority=1, arrived=10.0 + at) for at in range(40)]
    for each in [*humble, *urgent]:
        queue.offer(each, each.arrived)
    order = queue.move(60.0, WIDE).entered
    assert [order.index(each) for each in humble] == [15, 31]


def test_a_tenant_that_floods_the_queue_loses_its_own() -> None:
    queue = AdmissionQueue(10, lambda _: 1.0)
    for at in range(50):
        queue.offer(ticket("flood", arrived=float(at)), at)
    shed = [queue.offer(ticket("other", arrived=100.0 + at), 100 + at) for at in range(5)]
    assert [each and each.ticket.tenant for each in shed] == ["flood"] * 5
    urgent = queue.offer(ticket("flood", priority=1, arrived=200.0), 200)
    assert urgent
    assert urgent.ticket.priority == 0


def draining(queue: AdmissionQueue, rate: float, count: int = 100) -> float:
    """Let `count` have their turn, evenly; the time at the end, when one more waits."""
    now = 0.0
    queue.offer(ticket(), now)
    for _ in range(count):
        queue.offer(ticket(), now)
        now += 1 / rate
        queue.move(now, Room(1, math.inf))
    return now


def test_who_cannot_be_finished_in_time_is_shed_at_once_and_told_when_to_retry() -> None:
    queue = AdmissionQueue(100, lambda _: 1.0)
    now = draining(queue, rate=4)
    for _ in range(19):
        assert queue.offer(ticket(), now) is None
    assert queue.wait_seconds(now) == pytest.approx(5)
    queue.served(1.0)
    shed = queue.offer(ticket(deadline=now + 7), now)
    assert shed
    assert (shed.reason, shed.retry_seconds) == (Reason.LATE, pytest.approx(5))
    assert queue.offer(ticket(deadline=now + 8), now) is None
    # For its tenant is not the one that all wait for, nor its priority theirs.
    assert queue.offer(ticket("b", deadline=now + 2), now) is None
    assert queue.offer(ticket(priority=1, deadline=now + 2), now) is None


@pytest.mark.parametrize("share", [1, 3, 10])
def test_few_wait_in_vain_whatever_the_share_of_their_tenant(share: int) -> None:
    """What comes later of the other tenant often goes first, and there is too much of both."""
    rng, rate, deadline = random.Random(5), 32.0, 3.0
    weights = {"rich": float(share), "poor": 1.0}
    queue = AdmissionQueue(1000, weights.__getitem__)
    turns, vain = Counter[str](), Counter[str]()
    for turn in range(3000):
        now = turn / rate
        for _ in range(rng.choice((1, 2))):
            tenant = rng.choice(list(weights))
            queue.offer(ticket(tenant, arrived=now, deadline=now + deadline), now)
        queue.served(0.5)
        entered, shed = queue.move(now, Room(1, math.inf))
        turns.update(each.tenant for each in entered)
        vain.update(each.ticket.tenant for each in shed)
    for tenant in weights:
        assert vain[tenant] <= 0.15 * turns[tenant]


def test_the_rate_falls_while_nobody_has_a_turn() -> None:
    queue = AdmissionQueue(100, lambda _: 1.0)
    now = draining(queue, rate=4)
    before = queue.wait_seconds(now)
    assert queue.wait_seconds(now + 60) > 10 * before


def test_time_without_workers_or_without_anyone_waiting_is_not_slowness() -> None:
    queue = AdmissionQueue(100, lambda _: 1.0)
    now = draining(queue, rate=4)
    queue.move(now + 1000, None)
    assert queue.wait_seconds(now + 1000) == pytest.approx(0.25)
    queue.move(now + 1000, WIDE)
    queue.offer(ticket(), now + 9000)
    queue.offer(ticket(), now + 9000)
    assert queue.wait_seconds(now + 9000) < 100


def test_without_workers_no_deadline_is_given_up_before_it_is_there() -> None:
    queue = AdmissionQueue(100, lambda _: 1.0)
    queue.served(5.0)
    queue.move(0.0, None)
    assert queue.offer(ticket(latest=2.0, deadline=2.0), 0.0, staffed=False) is None
    assert queue.move(1.9, None).shed == []
    assert [shed.reason for shed in queue.move(2.0, None).shed] == [Reason.EXPIRED]


def test_unmeasured_the_retry_is_a_guess() -> None:
    shed = AdmissionQueue(0, lambda _: 1.0).offer(ticket(), 0.0)
    assert shed
    assert (shed.reason, shed.retry_seconds) == (Reason.FULL, RETRY_SECONDS)


def test_who_waits_until_its_work_does_not_fit_any_more_is_not_sent() -> None:
    queue = AdmissionQueue(100, lambda _: 1.0)
    queue.move(0.0, Room(0, 0))
    queue.offer(ticket(latest=10.0, deadline=10.0), 0.0)
    queue.served(3.0)
    assert queue.move(6.2, Room(0, 0)).shed == []
    entered, shed = queue.move(6.3, WIDE)
    assert entered == []
    assert [each.reason for each in shed] == [Reason.LATE]
