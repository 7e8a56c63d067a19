"""Reservations of other gateways, announced by real outboxes over a wire that does what it likes.

Announcements come late, twice, out of order, or never, and gateways fall silent. Two things are
checked: that what counts is what a plain replay of the rules says, and, whatever the rules, that no
reservation counts which its gateway had released when it made the last announcement taken here.
"""

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from radixgate.prefix import PrefixHash
from radixgate.v1.peer_pb2 import Announcement

from gateway.route.peers import Peers
from gateway.route.reservation import Reservation
from gateway.route.reservations import Reservations
from gateway.summary.outbox import Outbox

LIFETIME, SILENCE, WAITING = 10.0, 4.0, 3
GATEWAYS, WORKERS = ["x", "y"], ["a", "b"]
TOKENS = 10


def name(gateway: str, id_: int) -> PrefixHash:
    """A boundary that only this reservation has."""
    return PrefixHash(1_000 * GATEWAYS.index(gateway) + id_)


@dataclass
class Sent:
    """An announcement, and what its gateway had reserved and not released when it made it."""

    announcement: Announcement
    live: frozenset[int]


@dataclass(eq=False)
class Counted:
    """A reservation that counts, says the model."""

    gateway: str
    id: int
    worker: str
    made_at: float
    reported: bool = False


@dataclass
class Known:
    """What the model knows of a gateway."""

    number: int
    heard_at: float
    live: frozenset[int]


class PeersMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.now = 0.0
        self.reservations = Reservations(LIFETIME, 1_000, self.ended)
        self.peers = Peers(self.reservations, SILENCE)
        self.outboxes = {gateway: Outbox(gateway, WAITING) for gateway in GATEWAYS}
        self.live: dict[str, set[int]] = {gateway: set() for gateway in GATEWAYS}
        self.sent: dict[str, list[Sent]] = {gateway: [] for gateway in GATEWAYS}
        self.counted: list[Counted] = []
        self.known: dict[str, Known] = {}

    def ended(self, reservation: Reservation) -> None:
        self.peers.ended(reservation)

    @rule(gateway=st.sampled_from(GATEWAYS), worker=st.sampled_from(WORKERS))
    def reserve(self, gateway: str, worker: str) -> None:
        following = name(gateway, self.outboxes[gateway]._last_id + 1)
        id_ = self.outboxes[gateway].reserve(worker, 1, TOKENS, [following], 64)
        assert name(gateway, id_) == following
        self.live[gateway].add(id_)

    @rule(gateway=st.sampled_from(GATEWAYS), data=st.data())
    def release(self, gateway: str, data: st.DataObject) -> None:
        if self.live[gateway]:
            id_ = data.draw(st.sampled_from(sorted(self.live[gateway])))
            self.live[gateway].remove(id_)
            for _ in range(2):
                self.outboxes[gateway].release(id_)

    @rule(gateway=st.sampled_from(GATEWAYS), fails=st.booleans(), arrives=st.booleans())
    def announce(self, gateway: str, fails: bool, arrives: bool) -> None:
        announcement = self.outboxes[gateway].take()
        if announcement is None:
            return
        assert {reserved.id for reserved in announcement.reserved} <= self.live[gateway]
        if fails:
            self.outboxes[gateway].lost(announcement)
        if arrives or not fails:
            sent = Sent(announcement, frozenset(self.live[gateway]))
            self.sent[gateway].append(sent)

    @precondition(lambda self: any(self.sent.values()))
    @rule(data=st.data())
    def hear_any(self, data: st.DataObject) -> None:
        every = [sent for each in self.sent.values() for sent in each]
        self.hear(data.draw(st.sampled_from(every)))

    @rule(gateway=st.sampled_from(GATEWAYS))
    def hear_the_next(self, gateway: str) -> None:
        known = self.known.get(gateway)
        last = known.number if known else 0
        for sent in self.sent[gateway]:
            if sent.announcement.number > last:
                return self.hear(sent)
        return None

    def hear(self, sent: Sent) -> None:
        self.peers.heard(sent.announcement, self.now)
        self.forget_the_old()
        gateway, number = sent.announcement.gateway, sent.announcement.number
        known = self.known.get(gateway)
        if known is not None and number <= known.number:
            known.heard_at = self.now
            return
        if known is None or number > known.number + 1:
            self.keep(lambda counted: counted.gateway != gateway)
        self.known[gateway] = Known(number, self.now, sent.live)
        self.counted += [
            Counted(gateway, reserved.id, reserved.worker, self.now)
            for reserved in sent.announcement.reserved
        ]
        released = set(sent.announcement.released)
        self.keep(lambda counted: counted.gateway != gateway or counted.id not in released)

    @rule(seconds=st.floats(0, LIFETIME / 2))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.reservations.expire(self.now)
        self.peers.expire(self.now)
        self.forget_the_old()

    @rule(worker=st.sampled_from(WORKERS))
    def lose_worker(self, worker: str) -> None:
        self.reservations.forget(worker)
        self.keep(lambda counted: counted.worker != worker)

    @rule(worker=st.sampled_from(WORKERS))
    def report(self, worker: str) -> None:
        self.reservations.reported(worker)
        for counted in self.counted:
            counted.reported |= counted.worker == worker

    def forget_the_old(self) -> None:
        for gateway in list(self.known):
            if self.now - self.known[gateway].heard_at > SILENCE:
                del self.known[gateway]
        self.keep(
            lambda counted: (
                counted.gateway in self.known and (self.now - counted.made_at <= LIFETIME)
            )
        )

    def keep(self, wanted) -> None:  # type: ignore[no-untyped-def]
        self.counted = [counted for counted in self.counted if wanted(counted)]

    @invariant()
    def what_counts_is_what_the_model_says(self) -> None:
        assert len(self.reservations) == len(self.counted)
        for worker in WORKERS:
            unreported = [c for c in self.counted if c.worker == worker and not c.reported]
            assert self.reservations.unreported(worker).work == TOKENS * len(unreported)
        for counted in self.counted:
            expected = self.reservations.expected.match([name(counted.gateway, counted.id)])
            assert expected == {counted.worker: 1}

    @invariant()
    def nothing_counts_that_was_released_when_its_gateway_was_last_heard(self) -> None:
        for gateway, outbox in self.outboxes.items():
            known = self.known.get(gateway)
            live = known.live if known else frozenset()
            for id_ in range(1, outbox._last_id + 1):
                if self.reservations.expected.match([name(gateway, id_)]):
                    assert id_ in live


TestPeers = PeersMachine.TestCase


def test_what_counts_no_more_after_a_gap_or_silence_leaves_no_place_at_its_worker() -> None:
    reservations = Reservations(LIFETIME, 1_000)
    peers = Peers(reservations, SILENCE)
    outbox = Outbox("x")
    for number in range(3):
        outbox.reserve("a", 7, TOKENS, [name("x", number)], 64)
        announcement = outbox.take()
        assert announcement
        if number != 1:
            peers.heard(announcement, 0.0)
        reservations.reported("a")
    assert len(reservations) == 1, "of the three one was lost, and voids the one before"
    assert reservations.unreported("a").requests == 0
    peers.expire(SILENCE + 1)
    assert len(reservations) == 0
    assert reservations.unreported("a").requests == 0
