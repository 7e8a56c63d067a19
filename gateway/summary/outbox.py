"""What this gateway has reserved and the other gateways of a pool do not know yet.

Routing puts in and never waits; a publisher takes out all that has gathered, as one announcement.
What is released before it was taken is never announced. Bounded: when the publisher cannot keep up,
what is new is not announced, since reservations only help and the newest is not worth more. What
clients told of other gateways' reservations travels along, and is announced again until it arrives.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from radixgate.prefix import PrefixHash, pack_hashes
from radixgate.v1.gateway_pb2 import FinishRequest
from radixgate.v1.peer_pb2 import Announcement, Reserved

WAITING_LIMIT: Final = 1_000


class Outbox:
    """Args: `gateway` names this life of this gateway; `limit` of reservations that wait.

    Attributes:
        waiting: set while there is a reservation to announce.
        announced: how many reservations were taken out.
        dropped: how many were not announced, or may not have arrived.
    """

    def __init__(self, gateway: str, limit: int = WAITING_LIMIT) -> None:
        self.gateway = gateway
        self.waiting = asyncio.Event()
        self.announced = 0
        self.dropped = 0
        self._limit = limit
        self._last_id = 0
        self._number = 0
        self._unsent: dict[int, tuple[str, int, int, Sequence[PrefixHash], int, float]] = {}
        self._known: set[int] = set()
        self._released: list[int] = []
        self._finished: list[FinishRequest] = []

    def reserve(
        self,
        worker: str,
        epoch: int,
        tokens: int,
        boundaries: Sequence[PrefixHash],
        stride: int,
        *,
        weight: float = 1.0,
    ) -> int:
        """Announce a reservation soon; its id. The arguments are the fields of `Reserved`."""
        self._last_id += 1
        if len(self._unsent) >= self._limit:
            self.dropped += 1
        else:
            self._unsent[self._last_id] = (worker, epoch, tokens, boundaries, stride, weight)
            self.waiting.set()
        return self._last_id

    def release(self, id_: int) -> None:
        """The reservation has ended: announce that, if it was announced itself. Idempotent."""
        if self._unsent.pop(id_, None) is None and id_ in self._known:
            self._known.remove(id_)
            self._released.append(id_)

    def pass_on(self, finished: FinishRequest) -> bool:
        """Announce soon how another gateway's request ended; False when too much is waiting."""
        if len(self._finished) >= self._limit:
            return False
        self._finished.append(finished)
        self.waiting.set()
        return True

    def take(self) -> Announcement | None:
        """All that has gathered; None when the others have nothing of this gateway to hear of."""
        self.waiting.clear()
        if not (self._unsent or self._released or self._known or self._finished):
            return None
        self._number += 1
        announcement = Announcement(
            gateway=self.gateway,
            number=self._number,
            reserved=[
                Reserved(
                    id=id_,
                    worker=worker,
                    epoch=epoch,
                    tokens=tokens,
                    boundaries=pack_hashes(boundaries),
                    stride=stride,
                    weight=weight,
                )
                for id_, (worker, epoch, tokens, boundaries, stride, weight) in (
                    self._unsent.items()
                )
            ],
            released=self._released,
            finished=self._finished,
        )
        self.announced += len(self._unsent)
        self._known.update(self._unsent)
        self._unsent.clear()
        self._released.clear()
        self._finished.clear()
        return announcement

    def leave(self) -> None:
        """All reservations end: this gateway leaves, and who is routed by it tells it no more."""
        self._unsent.clear()
        self._released += self._known
        self._known.clear()

    def lost(self, announcement: Announcement) -> None:
        """It may not have arrived: a gap, which voids all before it. What clients told is repeated,
        no reservation is.
        """
        self._finished[:0] = announcement.finished
        self._number += 1
        self.dropped += len(announcement.reserved)
        self._known.clear()
        self._released.clear()


class Outboxes:
    """The outbox of each pool. Args: `gateway` names this life of this gateway."""

    def __init__(self, gateway: str) -> None:
        self._gateway = gateway
        self._outboxes: dict[str, Outbox] = {}

    def of(self, model: str) -> Outbox:
        """That of the pool of `model`."""
        outbox = self._outboxes.get(model)
        if outbox is None:
            outbox = self._outboxes[model] = Outbox(self._gateway)
        return outbox


OutboxOf = Callable[[str], Outbox]
