"""What routing decisions add to workers before the workers themselves report it.

A reservation has two parts with two lives. Its tokens count as load until the worker's own report
includes them, and are taken off that once they are known to be computed. Its boundaries are
expected of the worker while the request runs there, which is as long as the worker keeps them
locked, so a burst of siblings stays together. They are only those beyond what the worker holds
already: what is held and what is expected are matched as one. Of two reservations the tokens of a
boundary that both have count once, with the one that came first, since the worker computes it once:
gateways may have chosen it at the same time for siblings.

Pure: time comes in as seconds of any one clock that does not go back.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from radixgate.prefix import PrefixHash

from gateway.route.index import PrefixIndex


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Reservation:
    """One request on its way to, or running on, `worker`.

    Args:
        worker: where it goes.
        tokens: of its prompt, beyond those that the worker holds.
        boundaries: of these.
        stride: tokens from one boundary to the next.
        made_at: when this gateway made it or heard of it, in seconds.
        weight: of one of its tokens as work, see `radixgate.work`.
        seen: whether it will be said when its prompt is `computed`.
        gateway: that made it; empty for this one.
        id: counts the reservations of that gateway.
    """

    worker: str
    tokens: int
    boundaries: Sequence[PrefixHash]
    stride: int
    made_at: float
    weight: float = 1.0
    seen: bool = False
    gateway: str = ""
    id: int = 0


class Unreported(NamedTuple):
    """What a worker's last load report does not say yet.

    Args:
        requests: that were reserved there since, less those that ended since, so maybe below 0.
        work: that was reserved there since.
        known: work that was reserved there before by who will see it computed, and has not yet.
        computed: of that, what was computed since.
    """

    requests: int = 0
    work: int = 0
    known: int = 0
    computed: int = 0

    def backlog(self, reported: float) -> float:
        """Work that the worker has to do, as far as is known here.

        Args: `reported`, its backlog in that report. What goes beyond the known stays, since nobody
            here sees when that is computed. Of the known a part may have been computed before the
            report, so that less than all the rest is left.
        """
        unseen = max(0.0, reported - self.known)
        return min(reported, unseen + self.known - self.computed) + self.work


class Reservations:
    """All reservations that one gateway knows of.

    Each ends by `release`, or lapses: after `lifetime` seconds, or as the oldest past `limit`.
    `ended` hears of each end once.
    """

    def __init__(
        self, lifetime: float, limit: int, ended: Callable[[Reservation], None] = lambda _: None
    ) -> None:
        self.expected = PrefixIndex()
        self._lifetime = lifetime
        self._limit = limit
        self._ended = ended
        # In the order of making, which is the order of expiry.
        self._live: dict[Reservation, None] = {}
        # Work of each that was made since its worker's last report, and their sums.
        self._unreported: dict[str, dict[Reservation, int]] = {}
        self._work: Counter[str] = Counter()
        # Of those made before, the work of each that is seen computed, and was not yet; their sums
        # at that report, and what of these was computed since.
        self._reported: dict[str, dict[Reservation, int]] = {}
        self._known: Counter[str] = Counter()
        self._computed: Counter[str] = Counter()
        # Of each worker: how many of its reservations have a boundary.
        self._counts: defaultdict[str, dict[PrefixHash, int]] = defaultdict(dict)
        # By worker: how many are live, and how many were at its last report.
        self._running: Counter[str] = Counter()
        self._running_when_reported: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._live)

    def reserve(self, reservation: Reservation) -> None:
        """Count `reservation`, made no earlier than any before it."""
        self.expire(reservation.made_at)
        if len(self._live) >= self._limit:
            self.lapse(next(iter(self._live)))
        worker = reservation.worker
        self._live[reservation] = None
        self._running[worker] += 1
        counts, new = self._counts[worker], []
        for name in reservation.boundaries:
            count = counts.get(name, 0)
            counts[name] = count + 1
            if not count:
                new.append(name)
        if new:
            self.expected.stored(worker, new)
        shared = len(reservation.boundaries) - len(new)
        tokens = max(0, reservation.tokens - shared * reservation.stride)
        work = round(tokens * reservation.weight)
        self._unreported.setdefault(worker, {})[reservation] = work
        self._work[worker] += work

    def computed(self, reservation: Reservation) -> None:
        """Its prompt is computed, so its work is nobody's load any more. Idempotent."""
        if work := self._settle(reservation):
            self._computed[reservation.worker] += work

    def _settle(self, reservation: Reservation) -> int:
        """Count its work no longer; returns how much of that is in the worker's last report."""
        worker = reservation.worker
        unreported = self._unreported.get(worker, {})
        if reservation in unreported:
            self._work[worker] -= unreported.pop(reservation)
            return 0
        return self._reported.get(worker, {}).pop(reservation, 0)

    def release(self, reservation: Reservation) -> None:
        """The request has ended, well or badly. Idempotent."""
        if reservation not in self._live:
            return
        del self._live[reservation]
        self._running[reservation.worker] -= 1
        worker, gone = reservation.worker, []
        # NOTE: nobody knows when it was computed, or whether. So the report stands as it is.
        self._known[worker] -= self._settle(reservation)
        counts = self._counts[worker]
        for name in reservation.boundaries:
            count = counts[name] - 1
            if count:
                counts[name] = count
            else:
                del counts[name]
                gone.append(name)
        if gone:
            self.expected.removed(worker, gone)
        self._ended(reservation)

    def lapse(self, reservation: Reservation) -> None:
        """Nothing is known of the request any more, which may go on. Idempotent.

        So it leaves no place: if the worker's last report has it, that is still right.
        """
        if reservation in self._live:
            worker = reservation.worker
            self.release(reservation)
            before = self._running_when_reported.get(worker, 0)
            self._running_when_reported[worker] = before - 1

    def forget(self, worker: str) -> None:
        """`worker` is gone: whatever was on its way there is lost."""
        for reservation in [live for live in self._live if live.worker == worker]:
            self.release(reservation)
        self.expected.forgotten(worker, {})
        del self._running[worker]
        self._running_when_reported.pop(worker, None)
        self._counts.pop(worker, None)
        for books in (self._unreported, self._reported, self._work, self._known, self._computed):
            books.pop(worker, None)

    def expire(self, now: float) -> None:
        """Drop what was made more than the lifetime ago."""
        while self._live:
            oldest = next(iter(self._live))
            if now - oldest.made_at <= self._lifetime:
                return
            self.lapse(oldest)

    def reported(self, worker: str) -> None:
        """A load report of `worker` came: it includes all that was reserved there before."""
        before = self._reported.setdefault(worker, {})
        unreported = self._unreported.pop(worker, {})
        before.update((each, work) for each, work in unreported.items() if each.seen)
        self._known[worker] = sum(before.values())
        del self._work[worker], self._computed[worker]
        self._running_when_reported[worker] = self._running[worker]

    def unreported(self, worker: str) -> Unreported:
        """What to add to the last load report of `worker`."""
        # NOTE: `get`, since to ask a Counter for what it does not have takes a call.
        return Unreported(
            self._running.get(worker, 0) - self._running_when_reported.get(worker, 0),
            self._work.get(worker, 0),
            self._known.get(worker, 0),
            self._computed.get(worker, 0),
        )

    def match(self, boundaries: Sequence[PrefixHash], held: Mapping[str, int]) -> dict[str, int]:
        """How many of a prompt's `boundaries` each worker holds or is expected to hold.

        Args: `held`, how many each worker holds by its own reports.
        """
        return self.expected.match_beyond(boundaries, held)
