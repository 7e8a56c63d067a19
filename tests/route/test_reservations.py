"""Reservations against a plain list of them."""

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from radixgate.prefix import PrefixHash

from gateway.route.reservations import Reservation, Reservations, Unreported

LIFETIME, LIMIT = 10.0, 4
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
        self.when_reported = dict.fromkeys(WORKERS, 0)

    @rule(worker=st.sampled_from(WORKERS), tokens=st.integers(1, 99), length=st.integers(0, 8))
    def reserve(self, worker: str, tokens: int, length: int) -> None:
        self.now += 1
        reservation = Reservation(worker, tokens, BOUNDARIES[:length], self.now)
        self.reservations.reserve(reservation)
        self.made.append(reservation)
        unexpired = [live for live in self.live if self.now - live.made_at <= LIFETIME]
        self.live = [*unexpired[-(LIMIT - 1) :], reservation]
        self.computing.append(reservation)

    @rule(data=st.data())
    def computed(self, data: st.DataObject) -> None:
        if self.made:
            reservation = data.draw(st.sampled_from(self.made))
            self.reservations.computed(reservation)
            self.computing = [left for left in self.computing if left is not reservation]

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if self.made:
            reservation = data.draw(st.sampled_from(self.made))
            self.reservations.release(reservation)
            self.live = [left for left in self.live if left is not reservation]

    @rule(worker=st.sampled_from(WORKERS))
    def forget(self, worker: str) -> None:
        self.reservations.forget(worker)
        self.live = [left for left in self.live if left.worker != worker]
        self.when_reported[worker] = 0

    @rule(worker=st.sampled_from(WORKERS))
    def report(self, worker: str) -> None:
        self.reservations.reported(worker)
        self.computing = [left for left in self.computing if left.worker != worker]
        self.when_reported[worker] = sum(live.worker == worker for live in self.live)

    @rule(seconds=st.floats(0, LIFETIME))
    def expire(self, seconds: float) -> None:
        self.now += seconds
        self.reservations.expire(self.now)
        self.live = [left for left in self.live if self.now - left.made_at <= LIFETIME]

    @invariant()
    def sums_are_right(self) -> None:
        assert len(self.reservations) == len(self.live)
        expected: dict[str, int] = {}
        for worker in WORKERS:
            mine = [live for live in self.live if live.worker == worker]
            unreported = [live.tokens for live in mine if live in self.computing]
            assert self.reservations.tokens(worker) == sum(unreported)
            since = len(mine) - self.when_reported[worker]
            assert self.reservations.unreported(worker) == Unreported(since, sum(unreported))
            longest = max((len(live.boundaries) for live in mine), default=0)
            if longest:
                expected[worker] = longest
        assert self.reservations.expected.match(BOUNDARIES) == expected


TestReservations = ReservationsMachine.TestCase


def test_a_burst_of_siblings_is_expected_where_the_first_went() -> None:
    reservations = Reservations(LIFETIME, LIMIT)
    shared: Sequence[PrefixHash] = BOUNDARIES[:3]
    first = Reservation("a", 200, [*shared, PrefixHash(100)], 1.0)
    second = Reservation("a", 200, [*shared, PrefixHash(101)], 2.0)
    reservations.reserve(first)
    reservations.reserve(second)
    reservations.release(first)
    assert reservations.expected.match([*shared, PrefixHash(102)]) == {"a": 3}
    assert len(reservations.expected) == 4
    reservations.release(second)
    assert len(reservations.expected) == 0
