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

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from radixgate.prefix import PrefixHash

from gateway.route.index import PrefixIndex
from gateway.route.reservation import Reservation


@dataclass(slots=True)
class Unreported:
    """What a worker's last load report does not say yet; it changes with each reservation there.

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
        unseen = reported - self.known
        left = (unseen if unseen > 0 else 0.0) + self.known - self.computed
        return (left if left < reported else reported) + self.work


@dataclass(slots=True)
class _Books:
    """Of one worker.

    Args:
        unreported: what is added to its last report.
        since: work of each reservation that was made since its last report.
        before: of those made before, the work of each that is seen computed, and was not yet.
        counts: how many of its reservations have a boundary.
    """

    unreported: Unreported = field(default_factory=Unreported)
    since: dict[Reservation, int] = field(default_factory=dict)
    before: dict[Reservation, int] = field(default_factory=dict)
    counts: dict[PrefixHash, int] = field(default_factory=dict)

    def settle(self, reservation: Reservation) -> int:
        """Count its work no longer; returns how much of that is in the last report."""
        if reservation in self.since:
            self.unreported.work -= self.since.pop(reservation)
            return 0
        return self.before.pop(reservation, 0)


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
        self._books: defaultdict[str, _Books] = defaultdict(_Books)

    def __len__(self) -> int:
        return len(self._live)

    def reserve(self, reservation: Reservation) -> None:
        """Count `reservation`, made no earlier than any before it."""
        self.expire(reservation.made_at)
        if len(self._live) >= self._limit:
            self.lapse(next(iter(self._live)))
        self._live[reservation] = None
        books, new = self._books[reservation.worker], []
        counts = books.counts
        for name in reservation.boundaries:
            count = counts.get(name, 0)
            counts[name] = count + 1
            if not count:
                new.append(name)
        if new:
            self.expected.stored(reservation.worker, new)
        shared = len(reservation.boundaries) - len(new)
        tokens = max(0, reservation.tokens - shared * reservation.stride)
        work = round(tokens * reservation.weight)
        books.since[reservation] = work
        books.unreported.requests += 1
        books.unreported.work += work

    def computed(self, reservation: Reservation) -> None:
        """Its prompt is computed, so its work is nobody's load any more. Idempotent."""
        if reservation in self._live:
            books = self._books[reservation.worker]
            books.unreported.computed += books.settle(reservation)

    def release(self, reservation: Reservation) -> None:
        """The request has ended, well or badly. Idempotent."""
        if reservation not in self._live:
            return
        del self._live[reservation]
        books, gone = self._books[reservation.worker], []
        books.unreported.requests -= 1
        # NOTE: nobody knows when it was computed, or whether. So the report stands as it is.
        books.unreported.known -= books.settle(reservation)
        counts = books.counts
        for name in reservation.boundaries:
            count = counts[name] - 1
            if count:
                counts[name] = count
            else:
                del counts[name]
                gone.append(name)
        if gone:
            self.expected.removed(reservation.worker, gone)
        self._ended(reservation)

    def lapse(self, reservation: Reservation) -> None:
        """Nothing is known of the request any more, which may go on. Idempotent.

        So it leaves no place: if the worker's last report has it, that is still right.
        """
        if reservation in self._live:
            self.release(reservation)
            self._books[reservation.worker].unreported.requests += 1

    def forget(self, worker: str) -> None:
        """`worker` is gone: whatever was on its way there is lost."""
        for reservation in [live for live in self._live if live.worker == worker]:
            self.release(reservation)
        self.expected.forgotten(worker, {})
        self._books.pop(worker, None)

    def expire(self, now: float) -> None:
        """Drop what was made more than the lifetime ago."""
        while self._live:
            oldest = next(iter(self._live))
            if now - oldest.made_at <= self._lifetime:
                return
            self.lapse(oldest)

    def reported(self, worker: str) -> None:
        """A load report of `worker` came: it includes all that was reserved there before."""
        books = self._books[worker]
        books.before.update((each, work) for each, work in books.since.items() if each.seen)
        books.since.clear()
        books.unreported = Unreported(known=sum(books.before.values()))

    def unreported(self, worker: str) -> Unreported:
        """What to add to the last load report of `worker`."""
        books = self._books.get(worker)
        return Unreported() if books is None else books.unreported

    def match(self, boundaries: Sequence[PrefixHash], held: Mapping[str, int]) -> dict[str, int]:
        """How many of a prompt's `boundaries` each worker holds or is expected to hold.

        Args: `held`, how many each worker holds by its own reports.
        """
        return self.expected.match_beyond(boundaries, held)
