"""The mirror against the true history of each life, with events late, lost and doubled."""

from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from radixgate.digest import SetDigest
from radixgate.prefix import PrefixHash, pack_hashes
from radixgate.v1.peer_pb2 import Announcement
from radixgate.v1.sync_pb2 import Delta, Digest, Load, Removal, RemovalReason

from gateway.summary.events import (
    Changed,
    Departed,
    Detached,
    Event,
    Loaded,
    Registered,
    Replaced,
    WorkerRecord,
)
from gateway.summary.mirror import Mirror
from tests.summary.values import digest, registration

Held = frozenset[PrefixHash]


class SetListener:
    """The slow model of a route index: rebuilds the sets from what it hears, checking each step."""

    def __init__(self) -> None:
        self.held: dict[str, set[PrefixHash]] = {}
        self.announcements: list[Announcement] = []
        self.evicted: set[PrefixHash] = set()

    def stored(self, worker: str, hashes: Collection[PrefixHash]) -> None:
        mine = self.held.setdefault(worker, set())
        assert hashes
        assert mine.isdisjoint(hashes)
        mine.update(hashes)

    def removed(
        self, worker: str, hashes: Collection[PrefixHash], evicted: Collection[PrefixHash]
    ) -> None:
        assert hashes
        assert set(hashes).issuperset(evicted)
        self.evicted.update(evicted)
        assert self.held[worker].issuperset(hashes)
        self.held[worker].difference_update(hashes)

    def forgotten(self, worker: str, held: dict[PrefixHash, None]) -> None:
        assert self.held.pop(worker, set()) == held.keys()

    def cleared(self) -> None:
        self.held.clear()

    def heard(self, announcement: Announcement, now: float) -> None:
        self.announcements.append(announcement)


class Life:
    """One life of a worker: what it held after each seq."""

    def __init__(self, worker: str, epoch: int, states: list[Held]) -> None:
        self.worker, self.epoch, self.states = worker, epoch, [frozenset[PrefixHash](), *states]

    def digest(self, seq: int) -> SetDigest:
        return SetDigest.of(self.states[seq])

    def changed(self, seq: int) -> Changed:
        before, after = self.states[seq - 1], self.states[seq]
        stored, removed = list(after - before), list(before - after)
        return Changed(self.worker, self.epoch, seq, stored, removed, self.digest(seq))

    def record(self, seq: int) -> WorkerRecord:
        return WorkerRecord(
            registration(self.worker, self.epoch), seq, self.digest(seq), self.states[seq]
        )

    def loaded(self, seq: int, *, synced: bool) -> Loaded:
        digest = self.digest(seq)
        load = Load(seq=seq, digest=Digest(count=digest.count, xor=digest.xor))
        return Loaded(self.worker, self.epoch, load, synced)


held_sets = st.frozensets(st.integers(1, 12).map(PrefixHash), max_size=6)
histories = st.lists(st.lists(held_sets, min_size=1, max_size=6), min_size=1, max_size=3)


@given(st.data(), st.dictionaries(st.sampled_from(["a", "b"]), histories, min_size=1))
@settings(max_examples=150, deadline=None)
def test_any_order_of_events_gives_a_true_state_and_never_an_older_one(
    data: st.DataObject, drawn: dict[str, list[list[Held]]]
) -> None:
    lives = {
        worker: [Life(worker, epoch, states) for epoch, states in enumerate(epochs, start=1)]
        for worker, epochs in drawn.items()
    }
    listener = SetListener()
    mirror = Mirror(listener)
    reached: dict[str, tuple[int, int]] = {}
    for _ in range(data.draw(st.integers(1, 40), "events")):
        worker = data.draw(st.sampled_from(sorted(lives)), "worker")
        life = data.draw(st.sampled_from(lives[worker]), "life")
        seq = data.draw(st.integers(0, len(life.states) - 1), "seq")
        event = data.draw(st.sampled_from(_events(life, seq)), "event")
        if not mirror.apply(event):
            later = data.draw(st.integers(seq, len(life.states) - 1), "record")
            mirror.load(life.record(later))
            assert mirror.apply(event), "what was loaded is enough for the event"
        mirror.check_integrity()

        summary = mirror.get(worker)
        if summary is None:
            reached.pop(worker, None)
            assert worker not in listener.held
            continue
        state = (summary.epoch, summary.seq)
        assert state >= reached.get(worker, (0, 0))
        reached[worker] = state
        truth = lives[worker][summary.epoch - 1].states[summary.seq]
        assert summary.hashes.keys() == truth
        assert listener.held.get(worker, set()) == truth


def _events(life: Life, seq: int) -> list[Event]:
    worker, epoch = life.worker, life.epoch
    return [
        Registered(registration(worker, epoch), seq),
        life.changed(max(seq, 1)),
        Replaced(worker, epoch, seq, life.digest(seq)),
        life.loaded(seq, synced=True),
        life.loaded(seq, synced=False),
        Detached(worker, epoch),
        Departed(worker, epoch),
    ]


def test_a_late_event_cannot_bring_back_a_life_that_is_over() -> None:
    listener = SetListener()
    mirror = Mirror(listener)
    old, new = Life("a", 1, [frozenset({PrefixHash(7)})]), Life("a", 2, [])
    mirror.apply(Registered(registration("a", 1), 0))
    mirror.apply(old.changed(1))
    mirror.apply(Registered(registration("a", 2), 0))
    mirror.apply(Departed("a", 2))

    for event in [*_events(old, 1), Departed("a", 1)]:
        assert mirror.apply(event)
    mirror.load(old.record(1))

    assert "a" not in mirror
    assert listener.held == {}
    assert mirror.newest_epoch("a") == new.epoch


@pytest.mark.parametrize(
    "wrong",
    [
        Changed("a", 1, 1, [PrefixHash(5)], [], SetDigest(1, 6)),
        Changed("a", 1, 1, [], [PrefixHash(5)], SetDigest.of([PrefixHash(5)])),
        Changed("a", 1, 3, [PrefixHash(5)], [], SetDigest.of([PrefixHash(5)])),
        Replaced("a", 1, 0, SetDigest(1, 5)),
        Changed("a", 2, 1, [PrefixHash(5)], [], SetDigest.of([PrefixHash(5)])),
        Changed("other", 1, 1, [PrefixHash(5)], [], SetDigest.of([PrefixHash(5)])),
    ],
    ids=["digest", "removes what is not held", "gap", "replaced", "unknown life", "unknown worker"],
)
def test_an_event_that_does_not_follow_is_refused_and_changes_nothing(wrong: Event) -> None:
    listener = SetListener()
    mirror = Mirror(listener)
    mirror.apply(Registered(registration("a", 1), 0))

    assert not mirror.apply(wrong)

    mirror.check_integrity()
    assert listener.held == {}


def test_a_record_tells_the_listener_only_the_difference() -> None:
    listener = SetListener()
    mirror = Mirror(listener)
    life = Life("a", 1, [frozenset(map(PrefixHash, {1, 2})), frozenset(map(PrefixHash, {2, 3}))])
    mirror.load(life.record(1))
    mirror.load(life.record(2))
    mirror.load(life.record(1))

    assert listener.held == {"a": {2, 3}}


def test_the_listener_hears_what_had_to_make_room() -> None:
    names = [PrefixHash(name) for name in range(1, 5)]
    delta = Delta(
        seq=2,
        removed=[
            Removal(reason=RemovalReason.REMOVAL_REASON_CLEARED, hashes=pack_hashes(names[:1])),
            Removal(reason=RemovalReason.REMOVAL_REASON_CAPACITY, hashes=pack_hashes(names[1:3])),
        ],
        digest=digest(names[3:]),
    )
    listener = SetListener()
    mirror = Mirror(listener)
    mirror.load(Life("a", 1, [frozenset(names)]).record(1))

    assert mirror.apply(Changed.of("a", 1, delta))

    assert listener.held == {"a": {names[3]}}
    assert listener.evicted == {names[1], names[2]}
