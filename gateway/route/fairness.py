"""Whose turn it is among tenants, by weight: start-time fair queueing. Pure.

A tenant's *tag* is what it was served, in tokens divided by its weight. The tenant with the lowest
tag goes next. A tenant that comes starts where the others are, so idling saves up nothing; one that
leaves and comes back starts where it was, so coming one at a time gains nothing. Between two
tenants that wait all the time, what they are served differs, by weight, by no more than one request
of each. Tags rise when a tenant is served, so what is withdrawn costs nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from gateway.route.ticket import Ticket

ABSENT_KEPT: Final = 4096
"""Tenants whose tag is remembered while they do not wait."""


@dataclass(slots=True)
class _Line:
    """What waits of one tenant, in the order in which it came."""

    tag: float
    weight: float
    tickets: dict[Ticket, None] = field(default_factory=dict)
    tokens: int = 0

    @property
    def first(self) -> Ticket:
        return next(iter(self.tickets))

    @property
    def last(self) -> Ticket:
        return next(reversed(self.tickets))

    @property
    def end(self) -> float:
        """The tag when all that waits is served."""
        return self.tag + self.tokens / self.weight


class FairQueue:
    """Tickets of one priority. Args: `weight` of a tenant, above 0."""

    def __init__(self, weight: Callable[[str], float]) -> None:
        self._weight = weight
        self._lines: dict[str, _Line] = {}
        # Of tenants that do not wait, the one that left first at the front.
        self._absent: dict[str, float] = {}
        # The lowest tag of those that waited when one was last served.
        self._now = 0.0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, ticket: Ticket) -> None:
        """Let `ticket` wait behind the others of its tenant."""
        line = self._lines.get(ticket.tenant)
        if line is None:
            tag = self._start(ticket.tenant)
            self._absent.pop(ticket.tenant, None)
            line = self._lines[ticket.tenant] = _Line(tag, self._weight(ticket.tenant))
        line.tickets[ticket] = None
        line.tokens += ticket.tokens
        self._count += 1

    def withdraw(self, ticket: Ticket) -> None:
        """`ticket`, which waits, does so no longer, and was not served."""
        line = self._lines[ticket.tenant]
        del line.tickets[ticket]
        line.tokens -= ticket.tokens
        self._count -= 1
        if not line.tickets:
            del self._lines[ticket.tenant]
            self._leave(ticket.tenant, line.tag)

    def serve(self, ticket: Ticket) -> None:
        """It is the turn of `ticket`, which waits, whether it is the `first` or not."""
        self._now = min(line.tag for line in self._lines.values())
        line = self._lines[ticket.tenant]
        line.tag += ticket.tokens / line.weight
        self.withdraw(ticket)

    def serve_at_once(self, ticket: Ticket) -> bool:
        """Serve `ticket`, which does not wait, if it is the turn of its tenant, and say whether.

        Someone must wait.
        """
        own = self._lines.get(ticket.tenant)
        tag = own.tag if own else self._start(ticket.tenant)
        if tag > min(line.tag for line in self._lines.values()):
            return False
        self.add(ticket)
        self.serve(ticket)
        return True

    def first(self) -> Ticket:
        """Who is next; there must be someone. Of equal tags, who came first."""
        return min(self._lines.values(), key=lambda line: (line.tag, line.first.arrived)).first

    def last(self) -> Ticket:
        """Who would be served last if nobody else came; there must be someone."""

        def start(line: _Line) -> tuple[float, float]:
            last = line.last
            return line.end - last.tokens / line.weight, last.arrived

        return max(self._lines.values(), key=start).last

    def ahead(self, tenant: str) -> int:
        """How many would be served before a ticket of `tenant` that came now."""
        own = self._lines.get(tenant)
        start = own.end if own else self._start(tenant)
        return sum(
            len(line.tickets) if line is own else _starting_before(line, start)
            for line in self._lines.values()
        )

    def waiting(self, tenant: str) -> int:
        """How many of `tenant` wait."""
        line = self._lines.get(tenant)
        return len(line.tickets) if line else 0

    def _start(self, tenant: str) -> float:
        """The tag with which `tenant`, of which nothing waits, would come."""
        return max(self._now, self._absent.get(tenant, 0.0))

    def _leave(self, tenant: str, tag: float) -> None:
        if tag <= self._now:
            return
        self._absent[tenant] = tag
        if len(self._absent) > ABSENT_KEPT:
            del self._absent[next(iter(self._absent))]


def _starting_before(line: _Line, start: float) -> int:
    """How many of `line` have a tag of at most `start` when it is their turn."""
    tag, count = line.tag, 0
    for ticket in line.tickets:
        if tag > start:
            break
        count += 1
        tag += ticket.tokens / line.weight
    return count
