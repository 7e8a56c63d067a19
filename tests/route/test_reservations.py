"""Reservations against a plain list of them."""

from collections.abc import Iterable, Sequence

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from radixgate.prefix import PrefixHash

from gateway.route.reservation import Reservation
from gateway.route.reservations import Reservations, Unreported

LIFETIME, LIMIT = 10.0, 4
STRIDE = 64
BOUNDARIES = [PrefixHash(name) for name in range(8)]
WORKERS = ["a", "b"]


class ReservationsMachine(RuleBasedStateMachine):
    """Whatever happens, loads and expected boundaries are the sums over what is live."""

    @initialize()
    def start(self) -> None:
        self.now = 0.0
        self.reservations = Reservations(LIFETIME, LIMIT)
        self.made: list[Reservation] = []
        self.live: list[Reservation] = []
        self.computing: list[Reservation] = []
        # Seen, but not computed when their worker reported last; and what became of them.
        self.told: list[Reservation] = []
        self.known = dict.fromkeys(WORKERS, 0)
        self.done = dict.fromkeys(WORKERS, 0)
        self.when_reported = dict.fromkeys(WORKERS, 0)
        self.tokens: dict[Reservation, int] = {}

    @rule(
        worker=st.sampled_from(WORKERS),
        own=st.integers(1, STRIDE - 1),
        length=st.integers(0, 8),
        seen=st.booleans(),
    )
    def reserve(self, worker: str, own: int, length: int, seen: bool) -> None:
        self.now += 1
        reservation = Reservation(
            worker, own + length * STRIDE, BOUNDARIES[:length], STRIDE, self.now, seen=seen
        )
        self.reservations.reserve(reservation)
        self.made.append(reservation)
        unexpired = [live for live in self.live if self.now - live.made_at <= LIFETIME]
        others = unexpired[-(LIMIT - 1) :]
        self._lapsed(live for live in self.live if live not in others)
        there = max((len(live.boundaries) for live in others if live.worker == worker), default=0)
        self.tokens[reservation] = own + max(0, length - there) * STRIDE
        self._keep(others)
        self.live.append(reservation)
        self.computing.append(reservation)

    @rule(data=st.data())
    def computed(self, data: st.DataObject) -> None:
        if self.made:
            reservation = data.draw(st.sampled_from(self.made))
            self.reservations.computed(reservation)
            if reservation in self.told:
                self.done[reservation.worker] += self.tokens[reservation]
            self._settle([reservation])

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if self.made:
            reservation = data.draw(st.sampled_from(self.made))
            self.reservations.release(reservation)
            self._keep(left for left in self.live if left is not reservation)

    @rule(worker=st.sampled_from(WORKERS))
    def forget(self, worker: str) -> None:
        self.reservations.forget(worker)
        self._keep(left for left in self.live if left.worker != worker)
        self.when_reported[worker] = self.known[worker] = self.done[worker] = 0

    @rule(worker=st.sampled_from(WORKERS))
    def report(self, worker: str) -> None:
        self.reservations.reported(worker)
        self.told += [each for each in self.computing if each.worker == worker and each.seen]
        self.computing = [left for left in self.computing if left.worker != worker]
        self.known[worker] = sum(self.tokens[each] for each in self.told if each.worker == worker)
        self.done[worker] = 0
        self.when_reported[worker] = sum(live.worker == worker for live in self.live)

    @rule(data=st.data())
    def lapse(self, data: st.DataObject) -> None:
        if self.made:
            reservation = data.draw(st.sampled_from(self.made))
            self.reservations.lapse(reservation)
            self._lapsed(live for live in self.live if live is reservation)
            self._keep(left for left in self.live if left is not reservation)

    @rule(seconds=st.floats(0, LIFETIME))
    def expire(self, seconds: float) -> None:
        self.now += seconds
        self.reservations.expire(self.now)
        unexpired = [live for live in self.live if self.now - live.made_at <= LIFETIME]
        self._lapsed(live for live in self.live if live not in unexpired)
        self._keep(unexpired)

    @invariant()
    def sums_are_right(self) -> None:
        assert len(self.reservations) == len(self.live)
        expected: dict[str, int] = {}
        for worker in WORKERS:
            mine = [live for live in self.live if live.worker == worker]
            unreported = sum(self.tokens[live] for live in mine if live in self.computing)
            since = len(mine) - self.when_reported[worker]
            assert self.reservations.unreported(worker) == Unreported(
                since, unreported, self.known[worker], self.done[worker]
            )
            longest = max((len(live.boundaries) for live in mine), default=0)
            if longest:
                expected[worker] = longest
        assert self.reservations.expected.match(BOUNDARIES) == expected

    def _keep(self, live: Iterable[Reservation]) -> None:
        """The others are over, and nobody knows what was computed of them."""
        before, self.live = self.live, list(live)
        gone = [each for each in before if each not in self.live]
        for each in gone:
            if each in self.told:
                self.known[each.worker] -= self.tokens[each]
        self._settle(gone)

    def _settle(self, reservations: list[Reservation]) -> None:
        self.computing = [left for left in self.computing if left not in reservations]
        self.told = [left for left in self.told if left not in reservations]

    def _lapsed(self, reservations: Iterable[Reservation]) -> None:
        """They may go on, so what is unreported does not fall."""
        for reservation in reservations:
            self.when_reported[reservation.worker] -= 1


TestReservations = ReservationsMachine.TestCase


def test_a_burst_of_siblings_is_expected_where_the_first_went() -> None:
    reservations = Reservations(LIFETIME, LIMIT)
    shared: Sequence[PrefixHash] = BOUNDARIES[:3]
    first = Reservation("a", 260, [*shared, PrefixHash(100)], STRIDE, 1.0)
    second = Reservation("a", 260, [*shared, PrefixHash(101)], STRIDE, 2.0)
    reservations.reserve(first)
    reservations.reserve(second)
    work = reservations.unreported("a").work
    assert work == 260 + (260 - 3 * STRIDE), "the prefix is computed once"
    reservations.release(first)
    assert reservations.expected.match([*shared, PrefixHash(102)]) == {"a": 3}
    assert len(reservations.expected) == 4
    reservations.release(second)
    assert len(reservations.expected) == 0


PROMPT = [PrefixHash(name) for name in range(40)]
HELD = st.dictionaries(st.sampled_from(WORKERS), st.integers(1, 40))
# The worker, how much was held when it was reserved, and where the prompt leaves this one.
RESERVED = st.tuples(st.sampled_from(WORKERS), st.integers(0, 40), st.integers(0, 40))


@given(HELD, st.lists(RESERVED, max_size=6))
def test_what_is_held_and_what_is_reserved_beyond_it_match_as_one(
    held: dict[str, int], reserved: list[tuple[str, int, int]]
) -> None:
    reservations = Reservations(LIFETIME, limit=100)
    expected = dict(held)
    for worker, known, end in reserved:
        # Its gateway knew less than is known here, or just as much.
        start = min(known, expected.get(worker, 0))
        other_tail = [PrefixHash(1000 + name) for name in range(3)]
        boundaries = [*PROMPT[start:end], *other_tail]
        reservations.reserve(Reservation(worker, 1, boundaries, STRIDE, 1.0))
        if end > start:
            expected[worker] = max(expected.get(worker, 0), end)
    assert reservations.match(PROMPT, held) == expected
    assert reservations.match([], {}) == {}


def test_a_request_that_outlives_its_reservation_leaves_no_place_at_its_worker() -> None:
    reservations = Reservations(LIFETIME, LIMIT)
    first, second = (Reservation("a", 64, BOUNDARIES[:1], STRIDE, 0.0) for _ in range(2))
    reservations.reserve(first)
    reservations.reserve(second)
    reservations.reported("a")
    reservations.release(first)
    assert reservations.unreported("a").requests == -1
    reservations.expire(LIFETIME + 1)
    assert len(reservations) == 0
    assert reservations.unreported("a").requests == -1


def test_what_was_computed_since_the_report_is_no_longer_waited_for() -> None:
    reservations = Reservations(LIFETIME, LIMIT)
    first, second, third = (
        Reservation("a", tokens, [], STRIDE, 0.0, seen=True) for tokens in (300, 200, 100)
    )
    reservations.reserve(first)
    reservations.reserve(second)
    reservations.reported("a")
    reservations.reserve(third)
    assert reservations.unreported("a").backlog(500) == 600
    reservations.computed(first)
    assert reservations.unreported("a").backlog(500) == 300
    reservations.computed(third)
    assert reservations.unreported("a").backlog(500) == 200
    reservations.reported("a")
    assert reservations.unreported("a").backlog(120) == 120, "the report has it all again"


def test_a_prompt_that_was_half_computed_at_the_report_does_not_count_for_the_others() -> None:
    there = Unreported(known=500, computed=300)
    assert there.backlog(350) == 200
    assert there.backlog(150) == 150
    assert Unreported(known=500, computed=500).backlog(350) == 0


def test_what_others_have_sent_stays_in_the_backlog() -> None:
    assert Unreported(known=500, computed=500).backlog(800) == 300
    assert Unreported(known=0, computed=0).backlog(800) == 800


def test_a_request_that_ended_before_its_first_token_takes_nothing_off_the_report() -> None:
    reservations = Reservations(LIFETIME, LIMIT)
    cancelled = Reservation("a", 300, [], STRIDE, 0.0, seen=True)
    reservations.reserve(cancelled)
    reservations.reported("a")
    reservations.release(cancelled)
    assert reservations.unreported("a").backlog(300) == 300


def test_what_nobody_here_sees_computed_does_not_hide_what_is_seen() -> None:
    reservations = Reservations(LIFETIME, LIMIT)
    seen = Reservation("a", 800, [], STRIDE, 0.0, seen=True)
    for reservation in (
        Reservation("a", 4000, [], STRIDE, 0.0, gateway="peer", id=1),
        Reservation("a", 4000, [], STRIDE, 0.0),
        seen,
    ):
        reservations.reserve(reservation)
    reservations.reported("a")
    assert reservations.unreported("a").backlog(800) == 800
    reservations.computed(seen)
    assert reservations.unreported("a").backlog(800) == 0


def test_nothing_is_left_of_a_worker_that_is_forgotten() -> None:
    reservations = Reservations(LIFETIME, LIMIT)
    first, second = (Reservation("a", 100, [], STRIDE, 0.0, seen=True) for _ in range(2))
    reservations.reserve(first)
    reservations.reserve(second)
    reservations.reported("a")
    reservations.computed(first)
    reservations.forget("a")
    assert reservations.unreported("a") == Unreported()


@given(*[st.integers(0, 1000)] * 3, st.floats(0, 2000))
def test_a_backlog_is_between_nothing_and_all_that_is_known(
    known: int, computed: int, work: int, reported: float
) -> None:
    left = Unreported(0, work, known, min(known, computed)).backlog(reported)
    assert work <= left <= reported + work
