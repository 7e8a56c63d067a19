"""The fleet by its events and a clock that the test moves."""

import pytest
from radixgate.digest import SetDigest
from radixgate.v1.worker_pb2 import ModelCard

from gateway.fleet.fleet import Expired, Fleet
from gateway.fleet.trust import Belief, SyncState, Trust, believe
from gateway.fleet.worker import FleetWorker, Life
from gateway.summary.events import Departed, Detached, Event, Loaded, Registered, Replaced
from tests.summary import values
from tests.summary.values import MODEL, registration

LEASE = 5.0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Pooled:
    """A fleet with one pool."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.fleet = Fleet(LEASE, self.clock)

    def join(self, worker: str = "a", epoch: int = 1) -> None:
        self.see(Registered(registration(worker, epoch), 0))
        self.fleet.admit(registration(worker, epoch), ModelCard(model=MODEL))

    def see(self, event: Event) -> None:
        self.fleet.observe(MODEL, event)

    def load(self, worker: str = "a", epoch: int = 1, *, synced: bool = True) -> None:
        self.see(Loaded(worker, epoch, values.load(0, []), synced))

    def belief(self, worker: str = "a") -> Belief:
        known = self.fleet.get(MODEL, worker)
        assert known is not None
        return known.belief(self.clock.now)

    def candidates(self) -> list[str]:
        return [worker.id for worker in self.fleet.candidates(MODEL)]


@pytest.fixture
def pooled() -> Pooled:
    return Pooled()


@pytest.mark.parametrize(
    ("state", "silence", "remaining", "problem", "trust", "reason"),
    [
        (SyncState.SYNCED, 0.1, 4.9, "", Trust.LIVE, "in sync"),
        (SyncState.SYNCED, 2.6, 2.4, "", Trust.SUSPECT, "silent for 2.6 s"),
        (SyncState.SYNCED, 5.0, 0.0, "", Trust.LOST, "its lease was 5 s"),
        (SyncState.SYNCED, 9.0, None, "", Trust.SUSPECT, "Redis is away"),
        (SyncState.SYNCED, 0.1, 4.9, "another tokenizer", Trust.LOST, "another tokenizer"),
        (SyncState.JOINING, 0.1, 4.9, "", Trust.SUSPECT, "no load report"),
        (SyncState.RESYNCING, 0.1, 4.9, "", Trust.SUSPECT, "resync"),
        (SyncState.DETACHED, 0.1, 4.9, "", Trust.SUSPECT, "stream ended"),
    ],
)
def test_belief(
    state: SyncState,
    silence: float,
    remaining: float | None,
    problem: str,
    trust: Trust,
    reason: str,
) -> None:
    now = 100.0
    deadline = None if remaining is None else now + remaining
    worker = FleetWorker(
        registration("a", 1), LEASE, now - silence, deadline, state, problem=problem
    )
    for belief in (believe(state, silence, LEASE, remaining, problem), worker.belief(now)):
        assert belief.trust is trust
        assert reason in belief.reason


def test_a_worker_is_a_candidate_once_its_card_is_checked(pooled: Pooled) -> None:
    pooled.see(Registered(registration("a", 1), 0))
    assert pooled.candidates() == []
    assert pooled.fleet.card(MODEL) is None
    pooled.fleet.admit(registration("a", 1), ModelCard(model=MODEL))
    assert pooled.candidates() == ["a"]
    assert pooled.fleet.card(MODEL) == ModelCard(model=MODEL)
    assert pooled.fleet.models() == [MODEL]


def test_a_refused_worker_is_lost_and_says_why(pooled: Pooled) -> None:
    pooled.join()
    pooled.fleet.refuse(registration("a", 1), "another tokenizer")
    assert pooled.candidates() == []
    assert pooled.belief() == Belief.of(Trust.LOST, "another tokenizer")


def test_a_doubt_weighs_on_what_reports_say(pooled: Pooled) -> None:
    pooled.join()
    pooled.load()
    doubt = Belief(Trust.SUSPECT, "it lied", 0.25)
    pooled.fleet.doubt(Life(MODEL, "a", 2), doubt)
    assert pooled.belief().trust is Trust.LIVE, "the doubt is of another life"
    pooled.fleet.doubt(Life(MODEL, "a", 1), doubt)
    assert pooled.belief() == doubt
    assert pooled.candidates() == ["a"]
    worker = pooled.fleet.get(MODEL, "a")
    assert worker is not None
    assert worker.in_sync(pooled.clock.now)
    pooled.load(synced=False)
    both = pooled.belief()
    assert (both.trust, both.weight) == (Trust.SUSPECT, 0.25)
    assert "resync is under way; it lied" in both.reason
    pooled.see(Registered(registration("a", 1), 0))
    pooled.load()
    assert pooled.belief() == doubt, "the same life is doubted still"
    pooled.fleet.doubt(Life(MODEL, "a", 1), None)
    assert pooled.belief().trust is Trust.LIVE
    pooled.fleet.doubt(Life(MODEL, "a", 1), doubt)
    pooled.fleet.refuse(registration("a", 1), "another tokenizer")
    assert pooled.belief().trust is Trust.LOST
    pooled.see(Registered(registration("a", 2), 0))
    pooled.load(epoch=2)
    assert pooled.belief().trust is Trust.LIVE, "a new life is not doubted"


def test_a_draining_worker_takes_nothing_new(pooled: Pooled) -> None:
    pooled.join()
    pooled.see(Loaded("a", 1, values.load(0, [], draining=True), synced=True))
    assert pooled.candidates() == []


def test_trust_follows_the_events(pooled: Pooled) -> None:
    pooled.join()
    assert pooled.belief().trust is Trust.SUSPECT
    pooled.load()
    assert pooled.belief().trust is Trust.LIVE
    pooled.load(synced=False)
    assert pooled.belief().trust is Trust.SUSPECT
    pooled.see(Replaced("a", 1, 1, SetDigest()))
    pooled.load()
    assert pooled.belief().trust is Trust.LIVE
    pooled.see(Detached("a", 1))
    assert pooled.belief().trust is Trust.SUSPECT
    pooled.see(Registered(registration("a", 1), 0))
    pooled.load()
    assert pooled.belief().trust is Trust.LIVE
    assert pooled.candidates() == ["a"], "the card of the same life is kept"


def test_a_new_life_starts_without_card_and_load_and_the_old_one_is_ignored(
    pooled: Pooled,
) -> None:
    pooled.join(epoch=1)
    pooled.load(epoch=1)
    pooled.see(Registered(registration("a", 2), 0))
    for late in (
        Registered(registration("a", 1), 0),
        Loaded("a", 1, values.load(0, []), synced=True),
        Departed("a", 1),
    ):
        pooled.see(late)
    pooled.fleet.admit(registration("a", 1), ModelCard(model=MODEL))
    worker = pooled.fleet.get(MODEL, "a")
    assert worker is not None
    assert (worker.epoch, worker.card, worker.load) == (2, None, None)


def test_a_late_event_cannot_bring_back_who_departed(pooled: Pooled) -> None:
    pooled.join()
    pooled.see(Departed("a", 1))
    pooled.load()
    pooled.see(Detached("a", 1))
    assert list(pooled.fleet) == []
    assert pooled.fleet.models() == []
    assert pooled.fleet.addresses() == set()


def test_silence_ends_a_lease_and_detaching_does_not_renew_it(pooled: Pooled) -> None:
    pooled.join()
    pooled.clock.now += LEASE - 1
    pooled.see(Detached("a", 1))
    assert pooled.fleet.expired() == []
    pooled.clock.now += 1
    assert pooled.fleet.expired() == [Expired(MODEL, Departed("a", 1))]
    assert pooled.candidates() == []


def test_no_lease_passes_while_no_news_can_arrive(pooled: Pooled) -> None:
    pooled.join("remote")
    pooled.join("local")
    pooled.join("broken")
    pooled.fleet.freeze(MODEL)
    pooled.load("local")
    pooled.see(Detached("broken", 1))
    pooled.clock.now += LEASE
    pooled.fleet.freeze(MODEL)
    assert {event.worker for _, event in pooled.fleet.expired()} == {"local", "broken"}
    assert pooled.belief("remote").trust is Trust.SUSPECT
    assert "Redis is away" in pooled.belief("remote").reason

    pooled.fleet.thaw(MODEL)
    assert pooled.belief("remote").trust is Trust.SUSPECT
    pooled.clock.now += LEASE - 0.1
    pooled.fleet.thaw(MODEL)
    assert "remote" not in {event.worker for _, event in pooled.fleet.expired()}
    pooled.clock.now += 0.1
    assert "remote" in {event.worker for _, event in pooled.fleet.expired()}


def test_pools_are_apart(pooled: Pooled) -> None:
    pooled.join()
    other = registration("a", 7)
    pooled.fleet.observe("other", Registered(other, 0))
    pooled.fleet.observe("other", Departed("a", 7))
    assert pooled.candidates() == ["a"]
    assert pooled.fleet.candidates("other") == []
    assert pooled.fleet.workers("never heard of") == []
