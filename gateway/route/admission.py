"""The admission queue of a model pool: who goes to the workers next, and who should not wait. Pure.

Who waits goes by priority, then in turn among tenants (`gateway.route.fairness`), then in the order
of coming. Who comes and need not wait for backlogs may pass them (`lets_pass`). What holds:

- Nobody waits while there is room, and nobody goes when there is none.
- One turn in `TURN_OF_OLDEST` is that of the one that has waited longest, whatever its priority. So
  one with n older ones before it goes after at most (n + 1) times as many others, or is told off.
- Nobody goes too late: what could not be finished before its deadline any more is shed, as soon as
  the measured rate at which the queue drains says so.
- No more than `limit` wait. Of one too many the last in turn is shed, which need not be the
  newcomer: a tenant that floods the queue loses its own.
"""

import math
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from gateway.route.fairness import FairQueue
from gateway.route.room import Room
from gateway.route.ticket import Ticket

TURN_OF_OLDEST: Final = 16
CAUTION: Final = 1.25
"""An estimate is taken to be too low by so much when it decides whether waiting is worth it."""

RETRY_SECONDS: Final = 1.0
"""When to retry while no rate has been measured."""

SHORTEST_RETRY_SECONDS: Final = 0.1
LONGEST_RETRY_SECONDS: Final = 60.0


class Reason(Enum):
    """Why a request is shed. The value names it in metrics."""

    FULL = "full"
    LATE = "late"
    EXPIRED = "expired"


class Shed(NamedTuple):
    """Who does not wait any more, why, and in how many seconds it may try again.

    FULL: there are too many. LATE: it would not be finished by its deadline. EXPIRED: it has waited
    as long as it may.
    """

    ticket: Ticket
    reason: Reason
    retry_seconds: float


class Moved(NamedTuple):
    """Args: those whose turn it is, in order; those who are shed."""

    entered: list[Ticket]
    shed: list[Shed]


class AdmissionQueue:
    """Args: how many may wait, the `limit`; the `weight` of a tenant, above 0.

    Attributes: `service`, told by `served` and by nobody else.
    """

    def __init__(self, limit: int, weight: Callable[[str], float]) -> None:
        self._limit = limit
        self._weight = weight
        # In the order of coming.
        self._waiting: dict[Ticket, None] = {}
        self._levels: dict[int, FairQueue] = {}
        self._entries = 0
        self._drain = Drain()
        # Of each line that waits, see `_line`.
        self._drains: dict[tuple[int, str], Drain] = {}
        self.service = Service()
        self._staffed = False
        # Nobody has an earlier one; maybe who had this one waits no longer.
        self._first_latest = math.inf
        self._first_deadline = math.inf

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def staffed(self) -> bool:
        """Whether there were workers when it was last called."""
        return self._staffed

    def offer(self, ticket: Ticket, now: float, *, staffed: bool = True) -> Shed | None:
        """Let `ticket` wait. Who is shed for it or in its place, if anyone is.

        `staffed`: there are workers. Without any, nobody knows how long anything takes.
        """
        self._staffed = staffed
        wait = self._wait_seconds(ticket, now)
        if staffed and (wait + self.service.seconds) * CAUTION > ticket.deadline - now:
            return Shed(ticket, Reason.LATE, _retry_seconds(wait))
        if not self._waiting:
            self._drain.begin(now)
        self._waiting[ticket] = None
        self._first_latest = min(self._first_latest, ticket.latest)
        self._first_deadline = min(self._first_deadline, ticket.deadline)
        if ticket.priority not in self._levels:
            self._levels[ticket.priority] = FairQueue(self._weight)
        self._levels[ticket.priority].add(ticket)
        if _line(ticket) not in self._drains:
            self._drains[_line(ticket)] = Drain()
            self._drains[_line(ticket)].begin(now)
        if len(self._waiting) <= self._limit:
            return None
        last = self._levels[min(self._levels)].last()
        self.withdraw(last)
        return Shed(last, Reason.FULL, _retry_seconds(self.wait_seconds(now)))

    def lets_pass(self, ticket: Ticket) -> bool:
        """Whether `ticket`, which comes now, goes before all that wait: it is its tenant's turn.

        It is paid for and counted like any other turn. Nobody passes a higher priority, nor the
        oldest when the turn is its own.
        """
        if not self._waiting:
            return True
        if self._turn_of_oldest or max(self._levels) > ticket.priority:
            return False
        level = self._levels.get(ticket.priority)
        if level is not None and not level.serve_at_once(ticket):
            return False
        self._entries += 1
        return True

    def withdraw(self, ticket: Ticket) -> None:
        """`ticket` waits no longer, without its turn. Idempotent."""
        if ticket in self._waiting:
            del self._waiting[ticket]
            self._levels[ticket.priority].withdraw(ticket)
            self._forget_line(ticket)

    def move(self, now: float, room: Room | None) -> Moved:
        """Shed those who are too late, then let in as many as there is `room` for.

        `room` is None when there are no workers: nothing moves then, and no rate is measured.
        """
        self._staffed = room is not None
        shed = self._shed_late(now)
        entered: list[Ticket] = []
        if room is None:
            for drain in (self._drain, *self._drains.values()):
                drain.begin(now)
            return Moved(entered, shed)
        while self._waiting and room.takes((ticket := self._next()).priority):
            self._enter(ticket, now)
            room = room.after(ticket.tokens)
            entered.append(ticket)
        return Moved(entered, shed)

    def served(self, seconds: float) -> None:
        """A request that had its turn was finished so long after."""
        self.service.observe(seconds)

    def wait_seconds(self, now: float) -> float:
        """How long until all that wait now have had their turn, at the measured rate; 0 until it is
        measured.
        """
        return self._drain.seconds(len(self._waiting), now)

    @property
    def _turn_of_oldest(self) -> bool:
        return (self._entries + 1) % TURN_OF_OLDEST == 0

    def _next(self) -> Ticket:
        if self._turn_of_oldest:
            return next(iter(self._waiting))
        return self._levels[max(self._levels)].first()

    def _enter(self, ticket: Ticket, now: float) -> None:
        del self._waiting[ticket]
        self._levels[ticket.priority].serve(ticket)
        self._entries += 1
        for drain in (self._drain, self._drains[_line(ticket)]):
            drain.entered(now)
        self._forget_line(ticket)

    def _forget_line(self, ticket: Ticket) -> None:
        """Drop what is kept of those that wait as `ticket` did, if nobody does any more."""
        level = self._levels[ticket.priority]
        if not level.waiting(ticket.tenant):
            del self._drains[_line(ticket)]
        if not level:
            del self._levels[ticket.priority]

    def _shed_late(self, now: float) -> list[Shed]:
        service = self.service.seconds * CAUTION if self._staffed else 0.0
        if now < self._first_latest and now <= self._first_deadline - service:
            return []
        shed = []
        for ticket in list(self._waiting):
            if ticket.latest <= now:
                reason = Reason.EXPIRED
            elif ticket.deadline - service < now:
                reason = Reason.LATE
            else:
                continue
            self.withdraw(ticket)
            shed.append(Shed(ticket, reason, _retry_seconds(self.wait_seconds(now))))
        self._first_latest = min((each.latest for each in self._waiting), default=math.inf)
        self._first_deadline = min((each.deadline for each in self._waiting), default=math.inf)
        return shed

    def _ahead(self, ticket: Ticket) -> int:
        """How many would have their turn before `ticket` if nobody else came."""
        ahead = sum(
            len(level) for priority, level in self._levels.items() if priority > ticket.priority
        )
        level = self._levels.get(ticket.priority)
        return ahead + level.ahead(ticket.tenant) if level else ahead

    def _wait_seconds(self, ticket: Ticket, now: float) -> float:
        """How long until the turn of a `ticket` that comes now; 0 until there is something to say.

        NOTE: who is ahead now says too little: until then others come, whose turn is before it. So
        it is also as long as what waits of its tenant takes, at the rate at which that moves.
        """
        wait = self._drain.seconds(self._ahead(ticket), now)
        own = self._drains.get(_line(ticket))
        if own is None:
            return wait
        return max(wait, own.seconds(self._levels[ticket.priority].waiting(ticket.tenant), now))


def _line(ticket: Ticket) -> tuple[int, str]:
    """Those that wait behind each other: of one priority and one tenant."""
    return ticket.priority, ticket.tenant


def _retry_seconds(wait: float) -> float:
    """When to try again where one would `wait` so long; 0 is unmeasured."""
    return min(max(wait or RETRY_SECONDS, SHORTEST_RETRY_SECONDS), LONGEST_RETRY_SECONDS)


class Drain:
    """How fast those that wait have their turn: a mean over the last few dozen turns."""

    _KEEP: Final = 0.95

    def __init__(self) -> None:
        self._turns = 0.0
        self._seconds = 0.0
        self._since = 0.0

    def begin(self, now: float) -> None:
        """From `now` on someone waits who could have a turn."""
        self._since = now

    def entered(self, now: float) -> None:
        """Someone who waited has its turn."""
        self._turns = self._turns * self._KEEP + 1
        self._seconds = self._seconds * self._KEEP + (now - self._since)
        self._since = now

    def seconds(self, turns: int, now: float) -> float:
        """How long so many turns take; 0 until there is something to say.

        `now`, while someone waits: the longer nobody had a turn, the slower it is.
        """
        if not self._turns:
            return 0.0
        return turns * (self._seconds + now - self._since) / self._turns


class Service:
    """How long requests take from their turn to their end.

    Few numbers say that of requests unlike each other. This is the lower quartile of the last ones,
    so that few are given up that would have made it: `seconds`, 0 until there is one.
    """

    _KEPT: Final = 64

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=self._KEPT)
        self.seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Count one request."""
        self._last.append(seconds)
        self.seconds = sorted(self._last)[len(self._last) // 4]
