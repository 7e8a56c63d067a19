"""How much more the workers of a pool can take now. Pure.

A worker is to have all its slots taken and a short backlog, from which it forms batches and picks
what it has cached. All that is beyond waits in the gateway, where deadlines and weights hold.

A gateway sees all that a worker reports, but of what is on its way only its own part. So a place
that one of its requests leaves is free for it at once, and a place that another gateway's request
leaves is free for all gateways from the next report on: they may take it several times over, and
what is too much waits in the worker until the report after that.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from gateway.fleet.pressure import Pressure
from gateway.route.cost import prior_rate
from gateway.route.reservations import Unreported

BACKLOG_MS: Final = 2000.0
"""Prompts that a worker computes in this time are enough until its next report, due within 1 s."""


class Room(NamedTuple):
    """Args: `requests` that slots and short queues take; `work` of prompts until the backlogs are
    as long as they may be.
    """

    requests: int
    work: float

    def takes(self, priority: int = 0) -> bool:
        """Whether there is room for one request more.

        Workers compute what is urgent first, so a backlog does not hold it up; slots do.
        """
        return self.requests > 0 and (self.work > 0 or priority > 0)

    def after(self, work: float) -> "Room":
        """What a request leaves that takes so much work."""
        return Room(self.requests - 1, self.work - work)


class Occupied(NamedTuple):
    """One worker. Args: the `pressure` on it by its last report; what happened there since."""

    pressure: Pressure
    unreported: Unreported


def pool_room(workers: Sequence[Occupied], backlog_ms: float = BACKLOG_MS) -> Room | None:
    """Room at all workers together; None when there is no worker.

    `backlog_ms`: of each; prompts that it computes in this time are enough for it.

    Which worker takes what is the router's choice: it may prefer one that is full.
    """
    if not workers:
        return None
    prior = prior_rate(pressure for pressure, _ in workers)
    requests, work = 0, 0.0
    for worker in workers:
        room = worker_room(worker, prior, backlog_ms)
        if room.requests > 0:
            requests += room.requests
            # NOTE: slots of a worker whose backlog is long do not make room at another.
            work += max(0.0, room.work)
    return Room(requests, work)


def worker_room(worker: Occupied, prior_rate: float, backlog_ms: float = BACKLOG_MS) -> Room:
    """Room at one worker; not above 0 where there is none.

    `prior_rate`: prefill work per ms, if it has measured none.
    """
    pressure, unreported = worker
    backlog = unreported.backlog(pressure.backlog_work)
    return Room(
        pressure.places - unreported.requests,
        backlog_ms * (pressure.work_per_ms or prior_rate) - backlog,
    )
