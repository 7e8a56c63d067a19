"""What routing decisions add to workers before the workers themselves report it.

A reservation has two parts with two lives. Its tokens count as load until the worker's own report
includes them. Its boundaries are expected of the worker while the request runs there, which is as
long as the worker keeps them locked, so a burst of siblings stays together. Pure: time comes in as
seconds of any one clock that does not go back.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from radixgate.prefix import PrefixHash

from gateway.route.index import PrefixIndex


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    """One request on its way to, or running on, `worker`.

    Args: `tokens` to be computed for it; `boundaries` of its prompt; `made_at`, in seconds.
    """

    worker: str
    tokens: int
    boundaries: Sequence[PrefixHash]
    made_at: float


class Unreported(NamedTuple):
    """What a worker's last load report does not say yet.

    Args: `requests` that were reserved there since, less those that ended since, so maybe below 0;
    reserved `tokens`.
    """

    requests: int
    tokens: int


class Reservations:
    """All reservations of one gateway.

    Each ends by `release`, at the latest after `lifetime` seconds; past `limit` the oldest goes.
    """

    def __init__(self, lifetime: float, limit: int) -> None:
        self.expected = PrefixIndex()
        self._lifetime = lifetime
        self._limit = limit
        # Both in the order of making, which is the order of expiry.
        self._live: dict[Reservation, None] = {}
        self._unreported: dict[str, dict[Reservation, None]] = {}
        self._counts: Counter[tuple[str, PrefixHash]] = Counter()
        # By worker: how many are live, and how many were at its last report.
        self._running: Counter[str] = Counter()
        self._running_when_reported: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._live)

    def reserve(self, reservation: Reservation) -> None:
        """Count `reservation`, made no earlier than any before it."""
        self.expire(reservation.made_at)
        if len(self._live) >= self._limit:
            self.release(next(iter(self._live)))
        worker = reservation.worker
        self._live[reservation] = None
        self._running[worker] += 1
        self._unreported.setdefault(worker, {})[reservation] = None
        keys = [(worker, name) for name in reservation.boundaries]
        self.expected.stored(worker, [name for _, name in keys if not self._counts[worker, name]])
        self._counts.update(keys)

    def computed(self, reservation: Reservation) -> None:
        """Its prompt is computed, so its tokens are nobody's load any more. Idempotent."""
        unreported = self._unreported.get(reservation.worker, {})
        if reservation in unreported:
            del unreported[reservation]
            if not unreported:
                del self._unreported[reservation.worker]

    def release(self, reservation: Reservation) -> None:
        """The request has ended, well or badly. Idempotent."""
        if reservation not in self._live:
            return
        del self._live[reservation]
        self._running[reservation.worker] -= 1
        self.computed(reservation)
        worker, gone = reservation.worker, []
        for name in reservation.boundaries:
            self._counts[worker, name] -= 1
            if not self._counts[worker, name]:
                del self._counts[worker, name]
                gone.append(name)
        self.expected.removed(worker, gone)

    def forget(self, worker: str) -> None:
        """`worker` is gone: whatever was on its way there is lost."""
        for reservation in [live for live in self._live if live.worker == worker]:
            self.release(reservation)
        self.expected.forgotten(worker, {})
        del self._running[worker]
        self._running_when_reported.pop(worker, None)

    def expire(self, now: float) -> None:
        """Drop what was made more than the lifetime ago."""
        while self._live:
            oldest = next(iter(self._live))
            if now - oldest.made_at <= self._lifetime:
                return
            self.release(oldest)

    def reported(self, worker: str) -> None:
        """A load report of `worker` came: it includes all that was reserved there before."""
        self._unreported.pop(worker, None)
        self._running_when_reported[worker] = self._running[worker]

    def unreported(self, worker: str) -> Unreported:
        """What to add to the last load report of `worker`."""
        requests = self._running[worker] - self._running_when_reported.get(worker, 0)
        return Unreported(requests, self.tokens(worker))

    def tokens(self, worker: str) -> int:
        """Reserved tokens that the last load report of `worker` does not include."""
        unreported = self._unreported.get(worker)
        return sum(reservation.tokens for reservation in unreported) if unreported else 0
