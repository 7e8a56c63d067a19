"""Turns at the workers of a pool: who has one at once, and who waits for whose end. Pure.

Who waits goes in the order of `gateway.route.admission`. Room is asked for when somebody waits, and
at most once in `TICK_SECONDS` while nobody does: looking at all workers takes long. Whoever serves
the turns calls `move` when a place may have become free: when a request ends, when a worker
reports, and every `TICK_SECONDS` for what only time brings.
"""

import math
from collections.abc import Callable
from typing import Final

from gateway.route.admission import AdmissionQueue, Moved
from gateway.route.room import Room
from gateway.route.ticket import Ticket

TICK_SECONDS: Final = 0.1


class Turns:
    """Seconds are of any one clock that does not go back.

    Args:
        limit: requests that may wait.
        weight: of a tenant, above 0.
        room: how much the workers can take now; None when there are none.
    """

    def __init__(
        self, limit: int, weight: Callable[[str], float], room: Callable[[], Room | None]
    ) -> None:
        self._queue = AdmissionQueue(limit, weight)
        self._room = room
        # They have their turn, but are still unknown to the router, which does not count them.
        self._entering: set[Ticket] = set()
        # Room seen a short time ago, less what it was given to.
        self._spare: Room | None = None
        self._spare_until = -math.inf

    def __len__(self) -> int:
        """How many wait."""
        return len(self._queue)

    @property
    def staffed(self) -> bool:
        """Whether there were workers when it was last seen."""
        return self._queue.staffed

    def drain_seconds(self, now: float) -> float:
        """How long until all that wait have had their turn; 0 until that is measured."""
        return self._queue.wait_seconds(now)

    def takes(self, tokens: int, now: float) -> bool:
        """Whether a request has its turn at once, since nobody waits and there is room for it.

        It is taken then: reserve at the router before anything else is asked.
        """
        if len(self._queue):
            return False
        if now >= self._spare_until or self._spare is None or not self._spare.takes():
            self._spare, self._spare_until = self._room_left(), now + TICK_SECONDS
        if self._spare is None or not self._spare.takes():
            return False
        self._spare = self._spare.after(tokens)
        return True

    def offer(self, ticket: Ticket, now: float) -> Moved:
        """Let a request wait that has no turn at once, unless it only waits for shorter backlogs
        and passes. What `move` says, if that is due.
        """
        if ticket.passes and self._lets_pass(ticket):
            self._entering.add(ticket)
            return Moved([ticket], [])
        staffed = self._queue.staffed if len(self._queue) else self._spare is not None
        shed = self._queue.offer(ticket, now, staffed=staffed)
        moved = Moved([], [])
        if len(self._queue) == 1 or ticket.priority > 0:
            moved = self.move(now)
        return moved if shed is None else Moved(moved.entered, [shed, *moved.shed])

    def move(self, now: float) -> Moved:
        """Give out what room there is. Each that it was given to is to be `entered`."""
        if not len(self._queue):
            return Moved([], [])
        moved = self._queue.move(now, self._room_left())
        self._entering.update(moved.entered)
        return moved

    def entered(self, ticket: Ticket) -> None:
        """Its request is about to be reserved at the router. Idempotent."""
        self._entering.discard(ticket)

    def withdraw(self, ticket: Ticket) -> None:
        """Its request is no longer wanted, whether it waits or has its turn. Idempotent."""
        self._queue.withdraw(ticket)
        self._entering.discard(ticket)

    def served(self, seconds: float) -> None:
        """A request that had its turn was finished so long after."""
        self._queue.served(seconds)

    def changed(self) -> None:
        """Workers came, or went, or take nothing more: what was seen of their room is wrong."""
        self._spare = None

    def _lets_pass(self, ticket: Ticket) -> bool:
        room = self._room_left()
        return room is not None and room.requests > 0 and self._queue.lets_pass(ticket)

    def _room_left(self) -> Room | None:
        room = self._room()
        if room is not None:
            for ticket in self._entering:
                room = room.after(ticket.tokens)
        return room
