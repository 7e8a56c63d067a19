"""What the list of pods says of workers, and whom the fleet sends requests for it."""

import pytest
from radixgate.v1.worker_pb2 import ModelCard

from gateway.fleet.discovery.endpoints import Endpoint
from gateway.fleet.discovery.roster import SECOND_THOUGHT, Listing, Place
from gateway.fleet.fleet import Fleet
from gateway.summary.events import Loaded, Registered, Registration
from tests.summary import values

MODEL, LEASE = "m", 1000.0


def pod(
    uid: str, name: str = "w", host: str = "10.0.0.1", *, ready: bool = True, ending: bool = False
) -> Endpoint:
    return Endpoint(uid, name, "ns", frozenset({host} if host else ()), ready, ready, ending)


class Listed:
    """A fleet, and the pods that are listed."""

    def __init__(self) -> None:
        self.now = 100.0
        self.fleet = Fleet(LEASE, lambda: self.now)

    def see(self, *pods: Endpoint) -> list[str]:
        """The workers whose pod is gone by that."""
        return [worker.id for worker in self.fleet.list_pods({each.uid: each for each in pods})]

    def join(self, worker: str = "w", host: str = "10.0.0.1", epoch: int = 1) -> None:
        registration = Registration(worker, epoch, f"{host}:50052", MODEL, "f", 16, 64, 1000)
        self.fleet.observe(MODEL, Registered(registration, 0))
        self.fleet.admit(registration, ModelCard(model=MODEL))

    def report(self, worker: str = "w", epoch: int = 1) -> None:
        self.fleet.observe(MODEL, Loaded(worker, epoch, values.load(0, []), True))

    def place(self, worker: str = "w") -> Place | None:
        known = self.fleet.get(MODEL, worker)
        assert known is not None
        return known.place

    def listing(self, worker: str = "w") -> Listing | None:
        place = self.place(worker)
        return place.listing if place else None

    def candidates(self) -> list[str]:
        return [worker.id for worker in self.fleet.candidates(MODEL)]


@pytest.fixture
def listed() -> Listed:
    return Listed()


def test_without_a_list_nothing_is_said(listed: Listed) -> None:
    listed.join()
    assert listed.place() is None
    assert listed.candidates() == ["w"]
    assert listed.fleet.unreported() == []


@pytest.mark.parametrize(
    ("pods", "listing", "used"),
    [
        ([], Listing.UNLISTED, True),
        ([pod("u")], Listing.READY, True),
        ([pod("u", ready=False)], Listing.NOT_READY, True),
        ([pod("u", ending=True)], Listing.TERMINATING, False),
        ([pod("u", host="10.0.0.2")], Listing.UNLISTED, True),
        ([pod("u", host="")], Listing.UNLISTED, True),
    ],
)
@pytest.mark.parametrize("worker_first", [True, False])
def test_a_worker_is_in_the_pod_at_its_address(
    listed: Listed, pods: list[Endpoint], listing: Listing, used: bool, worker_first: bool
) -> None:
    if worker_first:
        listed.join()
    listed.see(*pods)
    if not worker_first:
        listed.join()
    assert listed.listing() is listing
    assert listed.candidates() == ["w"] * used


def test_who_is_listed_no_more_gets_nothing_until_it_is_listed_again(listed: Listed) -> None:
    listed.join()
    listed.see(pod("u"))
    assert listed.see() == ["w"]
    assert listed.see() == [], "that it is gone is told once"
    listed.now += 10 * SECOND_THOUGHT
    listed.report()
    assert listed.listing() is Listing.GONE
    assert not listed.candidates()
    listed.see(pod("u", ready=False))
    assert listed.candidates() == ["w"]


def test_a_pod_that_lost_its_address_is_gone(listed: Listed) -> None:
    listed.join()
    listed.see(pod("u"))
    assert listed.see(pod("u", host="")) == ["w"]
    assert [each.uid for each in listed.fleet.unreported()] == []
    listed.see(pod("u"))
    assert listed.listing() is Listing.READY


@pytest.mark.parametrize("host", ["10.0.0.1", "10.0.0.2"])
def test_another_pod_of_the_name_is_not_the_one_that_was(listed: Listed, host: str) -> None:
    listed.join()
    listed.see(pod("old"))
    assert listed.see(pod("new", host=host)) == ["w"]
    assert not listed.candidates()
    assert [each.uid for each in listed.fleet.unreported()] == ["new"]
    listed.join(host=host, epoch=2)
    place = listed.place()
    assert place is not None
    assert place.endpoint is not None
    assert place.endpoint.uid == "new"
    assert listed.candidates() == ["w"]


def test_who_reports_from_an_address_that_a_list_gave_away_is_there(listed: Listed) -> None:
    """The list was behind when the worker came, and named the pod that had the address before."""
    listed.see(pod("old", name="before"))
    listed.join("w")
    assert listed.see(pod("new")) == ["w"]
    listed.report()
    assert listed.listing() is Listing.GONE, "it may have been under way"
    listed.now += SECOND_THOUGHT
    listed.report()
    assert listed.listing() is Listing.READY


def test_pods_in_the_network_of_their_host_are_told_apart_by_name(listed: Listed) -> None:
    listed.join("a")
    listed.join("b")
    listed.see(pod("ua", "a"), pod("ub", "b"))
    assert listed.see(pod("ub", "b")) == ["a"]
    assert listed.candidates() == ["b"]


def test_a_new_life_in_the_same_pod(listed: Listed) -> None:
    """A container that is started again: same UID, same address, new epoch."""
    listed.see(pod("u"))
    listed.join(epoch=1)
    listed.join(epoch=2)
    assert listed.listing() is Listing.READY
    listed.join(epoch=2)
    assert listed.see() == ["w"]
    listed.join(epoch=2)
    assert listed.listing() is Listing.GONE, "reporting to another gateway makes no new life"
