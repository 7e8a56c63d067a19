"""Sends a prepared request to the best worker, and to the next best whenever one fails.

Before the first token another worker begins anew; after it, another one goes on from there. With
hedging, a worker that is late with its first message gets company: who answers first serves it.
"""

import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from grpc import StatusCode
from radixgate.refused import RefusedError
from radixgate.v1.generate_pb2 import Started

from gateway.fleet.channels import Channels
from gateway.fleet.worker import FleetWorker, Life
from gateway.route.breaker import Breakers
from gateway.route.patience import Patience
from gateway.route.router import Router
from gateway.serve.choose import FAULTS, NONE, Choice, Chooser
from gateway.serve.delivery import Delivery, Write
from gateway.serve.forward import StreamError, WorkerStream
from gateway.serve.hedge import first_answer
from gateway.serve.metrics import Metrics
from gateway.serve.outcomes import Outcomes
from gateway.serve.prepare import Prepared
from gateway.serve.queue import Times
from gateway.serve.request_log import RequestLog

logger = logging.getLogger(__name__)

# In a row, without one token more.
MAX_ATTEMPTS: Final = 3
# What a request may survive in all, lest one that kills its workers goes through the whole fleet.
MAX_MIGRATIONS: Final = 5
# What another worker may well do better.
RETRYABLE: Final = FAULTS | {StatusCode.RESOURCE_EXHAUSTED}


@dataclass(slots=True)
class _Course:
    """A request on its way: what is asked for now, what was delivered, and who has failed."""

    prepared: Prepared
    delivery: Delivery
    times: Times
    failed: dict[Life, RefusedError] = field(default_factory=dict)

    @property
    def last_failure(self) -> RefusedError:
        """What the client gets if nobody else is tried."""
        return next(reversed(self.failed.values()))


class _Leg:
    """A request at one worker, from its reservation to its end.

    Args: `failed`, told with which error.
    """

    def __init__(
        self,
        choice: Choice,
        stream: WorkerStream,
        router: Router,
        *,
        asked_at: float,
        failed: Callable[[FleetWorker, StreamError], None],
    ) -> None:
        self.choice = choice
        self.worker = choice.estimate.worker
        self.estimate = choice.estimate
        self.asked_at = asked_at
        self._stream = stream
        self._router = router
        self._failed = failed

    async def read(self) -> bytes | None:
        """As `WorkerStream.read`."""
        try:
            return await self._stream.read()
        except StreamError as error:
            self._failed(self.worker, error)
            raise

    def computed(self) -> None:
        """The worker has computed the prompt."""
        self._router.computed(self.choice.reservation)

    def end(self) -> None:
        """Nothing more is wanted of the worker. Idempotent."""
        self._stream.cancel()
        self._router.release(self.choice.reservation)


class Dispatcher:
    """Calls workers.

    Args:
        chooser: chooses them.
        router_of: gives the router of a model's pool, which is told how its choices fare.
        channels: to the workers.
        breakers: told who answers.
        outcomes: told what the workers had cached.
        metrics: told of first tokens, retries and migrations.
        clock: the fleet's, in seconds.
        hedge: whether workers that are late get company.
        log: told what was served, if there is one.
    """

    def __init__(
        self,
        chooser: Chooser,
        router_of: Callable[[str], Router],
        channels: Channels,
        *,
        breakers: Breakers,
        outcomes: Outcomes,
        metrics: Metrics,
        clock: Callable[[], float],
        hedge: bool,
        log: RequestLog | None,
    ) -> None:
        self._chooser = chooser
        self._router_of = router_of
        self._channels = channels
        self._breakers = breakers
        self._outcomes = outcomes
        self._metrics = metrics
        self._clock = clock
        self._log = log
        self._patience: defaultdict[str, Patience] | None = defaultdict(Patience) if hedge else None

    async def stream(self, prepared: Prepared, write: Write, times: Times) -> None:
        """Serve the request; `times` are its own.

        Raises:
            RefusedError: no worker could serve it, or go on with it; or the deadline has passed.
        """
        delivery = Delivery(prepared.request, write, self._clock)
        try:
            await self._serve(_Course(prepared, delivery, times))
        finally:
            self._metrics.migrations.labels(prepared.model).inc(delivery.migrations)
            if self._log and delivery.begun:
                self._log.ended(prepared, delivery.output, times.arrived)

    async def _serve(self, course: _Course) -> None:
        delivery, fruitless = course.delivery, 0
        while fruitless < MAX_ATTEMPTS and delivery.migrations < MAX_MIGRATIONS:
            try:
                leg = self._ask(course)
            except RefusedError:
                if course.failed:
                    break
                raise
            if course.failed and not delivery.begun:
                self._metrics.retries.labels(course.prepared.model).inc()
            before = delivery.progress
            try:
                return await self._attempt(course, leg)
            except StreamError as error:
                if not _worth_another(error, delivery):
                    raise course.last_failure from error
            fruitless = 0 if delivery.progress > before else fruitless + 1
            if delivery.begun:
                course.prepared = course.prepared.resumed(delivery.rest())
        raise _given_up(course)

    def _ask(self, course: _Course, but: frozenset[Life] = NONE) -> _Leg:
        """Send the request to the best worker that has not failed it, nor is in `but`.

        Raises:
            RefusedError: there is none.
        """
        prepared, deadline = course.prepared, course.times.deadline
        choice = self._chooser.choose(prepared, but.union(course.failed))
        now = self._clock()
        timeout = None if deadline is None else max(0.0, deadline - now)
        channel = self._channels.get(choice.estimate.worker.address)
        return _Leg(
            choice,
            WorkerStream(channel, prepared.request, timeout),
            self._router_of(prepared.model),
            asked_at=now,
            failed=partial(self._failed, course),
        )

    def _failed(self, course: _Course, worker: FleetWorker, error: StreamError) -> None:
        refused = _refused(worker, error)
        course.failed[worker.life] = refused
        logger.warning("request %s: %s", course.prepared.request.request_id, refused)
        self._chooser.blame(worker.life, error.code, error.details)

    async def _attempt(self, course: _Course, first: _Leg) -> None:
        """Deliver what the worker sends, or one that answers before it."""
        legs, delivery = [first], course.delivery
        try:
            leg, message = await self._first_answer(course, legs)
            delivery.attempt(leg.estimate.expected_tokens, self._begun(course, leg))
            while message is not None:
                await delivery.receive(message)
                message = await leg.read()
            self._breakers.succeeded(leg.worker.life)
        finally:
            for each in legs:
                each.end()

    def _begun(self, course: _Course, leg: _Leg) -> Callable[[Started], None]:
        again = course.delivery.begun

        def begun(started: Started) -> None:
            leg.computed()
            self._breakers.answered(leg.worker.life)
            if not again:
                waited = self._clock() - course.times.arrived
                self._metrics.first_token_seconds.labels(course.prepared.model).observe(waited)
                self._outcomes.book(leg.choice.promise, started.cached_tokens)

        return begun

    async def _first_answer(self, course: _Course, legs: list[_Leg]) -> tuple[_Leg, bytes | None]:
        """The first message of the one in `legs`, or of another that joins it if it is late."""
        (first,) = legs
        if self._patience is None:
            return first, await first.read()
        model = course.prepared.model
        patience = self._patience[model]

        def another() -> _Leg | None:
            try:
                leg = self._ask(course, frozenset({first.worker.life}))
            except RefusedError:
                return None
            self._metrics.hedges.labels(model).inc()
            legs.append(leg)
            return leg

        answer = await first_answer(first, another, patience.limit(first.estimate.total_ms))
        now = self._clock()
        for leg in legs:
            patience.waited(leg.estimate.total_ms, now - leg.asked_at)
            if leg is not answer[0]:
                leg.end()
        return answer


def _worth_another(error: StreamError, delivery: Delivery) -> bool:
    """Whether another worker may help: with what was begun, whatever happened but its deadline."""
    if delivery.begun:
        return error.code is not StatusCode.DEADLINE_EXCEEDED
    return error.code in RETRYABLE


def _given_up(course: _Course) -> RefusedError:
    """What the client gets when several have failed, or nobody is left."""
    why = "; ".join(refused.message for refused in course.failed.values())
    if not course.delivery.begun:
        return RefusedError(course.last_failure.code, why)
    tokens = course.prepared.request.resumed_tokens
    return RefusedError(
        StatusCode.UNAVAILABLE, f"no worker is left to go on after {tokens} tokens: {why}"
    )


def _refused(worker: FleetWorker, error: StreamError) -> RefusedError:
    """What the client gets; what a worker says of the request itself stands for itself."""
    where = f"worker {worker.id!r} at {worker.address}: " if error.code in RETRYABLE else ""
    return RefusedError(error.code, where + error.details)
