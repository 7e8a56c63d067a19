"""Radixgate's own policy: one of its gateways, in virtual time.

Fleet, router with its index and reservations, turns, and the records of who keeps its promises are
the gateway's own. What is here is what dispatch, queue and outcomes do around them. Not played are
other gateways, failures, and deadlines of clients; what was evicted is not remembered, since that
explains misses and decides nothing; and the snapshot of a worker that is doubted comes at once.
"""

import math
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

from radixgate.v1.sync_pb2 import Load
from radixgate.v1.worker_pb2 import ModelCard

from gateway.fleet.fleet import Fleet
from gateway.fleet.worker import FleetWorker
from gateway.route.admission import Moved
from gateway.route.bookings import Bookings
from gateway.route.cost import COST, CostConfig
from gateway.route.outcome import Promise
from gateway.route.record import Records
from gateway.route.reservation import Reservation
from gateway.route.room import BACKLOG_MS, Occupied, Room, pool_room
from gateway.route.router import Estimate, Router, mostly_held
from gateway.route.ticket import Ticket
from gateway.route.turns import TICK_SECONDS, Turns
from gateway.serve.outcomes import STEP_SECONDS
from gateway.summary.events import Loaded, Registered, Registration
from gateway.summary.outbox import Outbox
from sim.policy.base import Choice, Job, Place, Policy, Site
from worker.kv.events import Change

_MODEL: Final = ""
_EPOCH: Final = 1


class _Sent(NamedTuple):
    """A request at its worker: what is reserved for it, and what was promised."""

    reservation: Reservation
    promise: Promise


class Cost(Policy):
    """Args:
    site: see there.
    config: of the cost.
    backlog_ms: prompts that a worker computes in this time are enough for it.
    queue_limit: requests that may wait for their turn.
    queue_seconds: that one waits at most.
    reserves: whether a choice counts before the worker reports it.
    """

    def __init__(
        self,
        site: Site,
        config: CostConfig = COST,
        *,
        backlog_ms: float = BACKLOG_MS,
        queue_limit: int = sys.maxsize,
        queue_seconds: float = math.inf,
        reserves: bool = True,
    ) -> None:
        super().__init__(site)
        self._backlog_ms = backlog_ms
        self._queue_seconds = queue_seconds
        self._reserves = reserves
        self._fleet = Fleet(math.inf, lambda: site.now)
        # NOTE: nobody takes out what is to be announced to other gateways.
        self._router = Router(Outbox("", limit=0), config)
        self._turns = Turns(queue_limit, lambda _: 1.0, self._room)
        self._bookings = Bookings(
            Records(),
            doubt=self._fleet.doubt,
            settled=lambda outcome: self._router.settled(outcome.promise),
        )
        self._waiting: dict[Ticket, Job] = {}
        self._sent: dict[Job, _Sent] = {}
        self._ticking = self._stepping = False
        for place in site.places:
            self._join(place)
        self._lives = frozenset(worker.life for worker in self._fleet)
        self._most_tokens = max(worker.kv_tokens for worker in self._fleet)

    def arrived(self, job: Job) -> None:
        """Send it when it is its turn."""
        now, tokens = self.site.now, job.prompt.tokens
        if tokens >= self._most_tokens:
            self.site.refuse(job, f"longer than the KV memory of a worker, {self._most_tokens}")
        elif self._turns.takes(tokens, now):
            self.site.send(job, self.choose(job))
        else:
            ticket = self._ticket(job)
            self._waiting[ticket] = job
            self._tell(self._turns.offer(ticket, now))

    def choose(self, job: Job) -> Choice:
        """The best worker, reserved."""
        now = self.site.now
        estimates = self._estimates(job)
        best = estimates[0]
        reservation = self._router.reserve(job.prompt, best, now)
        promise = self._router.promise(job.prompt, estimates, reservation, now)
        if not self._reserves:
            self._router.release(reservation)
        self._sent[job] = _Sent(reservation, promise)
        return Choice(best.worker.id, best.matched_tokens)

    def started(self, job: Job, worker: str, cached_tokens: int) -> None:  # noqa: ARG002
        """Hold it against what was promised."""
        self._bookings.book(self._sent[job].promise, cached_tokens, self.site.now)
        self._step_later()

    def first_token(self, job: Job, worker: str) -> None:  # noqa: ARG002
        """Its prompt is nobody's load any more."""
        self._router.computed(self._sent[job].reservation)

    def ended(self, job: Job, worker: str) -> None:  # noqa: ARG002
        """Its place is free for who waits."""
        self._router.release(self._sent.pop(job).reservation)
        self._move()

    def changed(self, worker: str, change: Change) -> None:
        """The index follows what the worker holds."""
        removed = [name for names in change.removed.values() for name in names]
        if removed:
            self._router.removed(worker, removed, ())
        if change.stored:
            self._router.stored(worker, change.stored)

    def loaded(self, worker: str, load: Load) -> None:
        """What was reserved there is part of its load now, and there may be room."""
        self._fleet.observe(_MODEL, Loaded(worker, _EPOCH, load, synced=True))
        self._router.reported(worker)
        self._move()

    def _join(self, place: Place) -> None:
        registration = Registration(
            worker=place.id,
            epoch=_EPOCH,
            address=place.id,
            model=_MODEL,
            fingerprint="",
            block_size=place.block_size,
            stride=self.site.stride,
            num_blocks=place.num_blocks,
        )
        self._fleet.observe(_MODEL, Registered(registration, 0))
        self._fleet.admit(registration, ModelCard())

    def _candidates(self, tokens: int) -> list[FleetWorker]:
        """Those that a prompt of so many tokens leaves room for output."""
        workers = self._fleet.candidates(_MODEL)
        return [worker for worker in workers if worker.kv_tokens > tokens]

    def _estimates(self, job: Job) -> Sequence[Estimate]:
        candidates = self._candidates(job.prompt.tokens)
        return self._router.estimate(job.prompt, candidates, self.site.now)

    def _room(self) -> Room | None:
        unreported = self._router.unreported
        workers = self._fleet.candidates(_MODEL)
        return pool_room(
            [Occupied(worker.pressure, unreported(worker.id)) for worker in workers],
            self._backlog_ms,
        )

    def _ticket(self, job: Job) -> Ticket:
        estimates = self._estimates(job)
        expected = max(each.expected_tokens for each in estimates)
        return Ticket(
            tenant=job.tenant,
            priority=job.priority,
            tokens=max(1, job.prompt.tokens - expected),
            held=mostly_held(job.prompt, estimates),
            arrived=job.arrived,
            latest=job.arrived + self._queue_seconds,
            deadline=math.inf,
        )

    def _move(self) -> None:
        if self._waiting:
            self._tell(self._turns.move(self.site.now))

    def _tell(self, moved: Moved) -> None:
        """Send whose turn it is, and see to it that the others move again."""
        for shed in moved.shed:
            self.site.refuse(self._waiting.pop(shed.ticket), shed.reason.value)
        for ticket in moved.entered:
            self._turns.entered(ticket)
            job = self._waiting.pop(ticket)
            self.site.send(job, self.choose(job))
        if self._waiting and not self._ticking:
            self._ticking = True
            self.site.call_at(self.site.now + TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        self._move()

    def _step_later(self) -> None:
        """As the gateway does all the time, but only while that may change anything."""
        if self._bookings.pending and not self._stepping:
            self._stepping = True
            self.site.call_at(self.site.now + STEP_SECONDS, self._step)

    def _step(self) -> None:
        self._stepping = False
        now = self.site.now
        for life, _ in self._bookings.step(self._lives, now):
            self._bookings.replaced(life, now)
        self._step_later()
