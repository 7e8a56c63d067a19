"""What the list of pods says of each worker. Pure.

A life of a worker is in the pod that was listed at its address when the two were first seen
together. It stays with that pod, by UID: another pod at the same address, or of the same name, is
not where it runs.
"""

from collections import defaultdict
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from gateway.fleet.discovery.endpoints import Endpoint, host_of

SECOND_THOUGHT: Final = 2.0
"""Seconds after its pod went. Who still reports then is alive: if another pod has its address, the
life is in that one, and was put down for the old one by a list that was behind."""


class Listing(Enum):
    """Whether a worker's pod is listed; its value in words for people."""

    UNLISTED = "no pod was ever listed at its address"
    READY = "its pod is ready"
    NOT_READY = "its pod is not ready"
    TERMINATING = "its pod is terminating"
    GONE = "its pod is not listed any more"


CLOSED: Final = frozenset({Listing.TERMINATING, Listing.GONE})
"""Takes no new requests."""


class Place(NamedTuple):
    """Where a life runs.

    Args:
        listing: whether that pod is listed.
        endpoint: the pod, as it was listed last; None when none ever was.
        gone_at: when it was seen to be gone, in the fleet's seconds; 0 before.
    """

    listing: Listing
    endpoint: Endpoint | None = None
    gone_at: float = 0.0

    @property
    def closed(self) -> bool:
        """Whether no new requests are to be sent there."""
        return self.listing in CLOSED


class Roster:
    """Args: the `endpoints` that are listed now, by UID."""

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        self.endpoints = dict(endpoints)
        self._at: defaultdict[str, list[Endpoint]] = defaultdict(list)
        for endpoint in endpoints.values():
            for address in endpoint.addresses:
                self._at[address].append(endpoint)

    def place(self, worker: str, address: str, before: Place | None, now: float) -> Place:
        """Where a life is that serves at `address`, as host:port, and was at `before`."""
        if before is None or before.endpoint is None:
            return self._first(worker, address)
        listed = self.endpoints.get(before.endpoint.uid)
        if listed is not None and host_of(address) in listed.addresses:
            return Place(listing_of(listed), listed)
        return before if before.listing is Listing.GONE else _gone(before.endpoint, now)

    def heard(self, worker: str, address: str, before: Place, now: float) -> Place:
        """Where a life is that has reported at `now`."""
        if before.listing is not Listing.GONE or now < before.gone_at + SECOND_THOUGHT:
            return before
        found = self._first(worker, address)
        return before if found.endpoint is None else found

    def _first(self, worker: str, address: str) -> Place:
        found = self._at.get(host_of(address))
        if not found:
            return Place(Listing.UNLISTED)
        # NOTE: pods in the network of their host share its address.
        best = max(found, key=lambda pod: (pod.name == worker, not pod.terminating, pod.ready))
        return Place(listing_of(best), best)


def _gone(endpoint: Endpoint, now: float) -> Place:
    return Place(Listing.GONE, endpoint, now)


def listing_of(endpoint: Endpoint) -> Listing:
    """What is listed of a pod."""
    if endpoint.terminating:
        return Listing.TERMINATING
    return Listing.READY if endpoint.ready else Listing.NOT_READY
