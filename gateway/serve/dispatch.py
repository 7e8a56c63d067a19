"""Sends a prepared request to the best worker, and to the next best whenever one fails.

Before the first token another worker begins anew; after it, another one goes on from there.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from grpc import StatusCode
from radixgate.refused import RefusedError
from radixgate.v1.generate_pb2 import Started

from gateway.fleet.channels import Channels
from gateway.fleet.fleet import Fleet
from gateway.fleet.worker import FleetWorker, Life
from gateway.route.breaker import Breakers
from gateway.route.reservations import Reservation
from gateway.route.router import Estimate, Router
from gateway.serve.delivery import Delivery, Write
from gateway.serve.forward import StreamError, WorkerStream
from gateway.serve.metrics import Metrics
from gateway.serve.prepare import Prepared

logger = logging.getLogger(__name__)

# In a row, without one token more.
MAX_ATTEMPTS: Final = 3
# What a request may survive in all, lest one that kills its workers goes through the whole fleet.
MAX_MIGRATIONS: Final = 5
# What speaks against the worker.
FAULTS: Final = {StatusCode.UNAVAILABLE, StatusCode.INTERNAL, StatusCode.UNKNOWN}
# What another worker may well do better.
RETRYABLE: Final = FAULTS | {StatusCode.RESOURCE_EXHAUSTED}

NONE: Final[frozenset[Life]] = frozenset()


class Choice(NamedTuple):
    """The worker that gets a request, and what is reserved there for it."""

    estimate: Estimate
    reservation: Reservation


class Dispatcher:
    """Chooses workers and calls them.

    Args:
        fleet: the workers there are.
        router_of: gives the router of a model's pool.
        channels: to the workers.
        breakers: keep requests from workers that fail again and again.
        metrics: counts predictions, deliveries, retries and migrations.
        clock: the fleet's, in seconds.
    """

    def __init__(
        self,
        fleet: Fleet,
        router_of: Callable[[str], Router],
        channels: Channels,
        *,
        breakers: Breakers,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self._fleet = fleet
        self._router_of = router_of
        self._channels = channels
        self._breakers = breakers
        self._metrics = metrics
        self._clock = clock

    def estimates(self, prepared: Prepared, without: frozenset[Life] = NONE) -> list[Estimate]:
        """Everyone who may serve the request, best first; nobody that `without` names.

        Workers that failed too often just now are left out, unless there are no others.

        Raises:
            RefusedError: FAILED_PRECONDITION, the prompt is too long for the KV memory of every
                worker; UNAVAILABLE, there is no one now.
        """
        candidates = self._candidates(prepared, without)
        if not candidates:
            raise self._nobody(prepared, without)
        return self._estimate(prepared, self._allowed(candidates))

    def choose(self, prepared: Prepared, without: frozenset[Life] = NONE) -> Choice:
        """The best worker, reserved. Raises as `estimates`."""
        best = self.estimates(prepared, without)[0]
        router, now = self._router_of(prepared.model), self._clock()
        self._breakers.sent(best.worker.life, now)
        return Choice(best, router.reserve(prepared.prompt, best, now))

    def barred(self, prepared: Prepared) -> list[Estimate]:
        """What `estimates` leaves out because it failed too often, best first."""
        candidates = self._candidates(prepared, NONE)
        allowed = self._allowed(candidates)
        barred = [worker for worker in candidates if worker not in allowed]
        return self._estimate(prepared, barred) if barred else []

    def circuit(self, worker: FleetWorker) -> str:
        """Why requests are kept away from `worker`; empty when they are not."""
        return self._breakers.reason(worker.life, self._clock())

    async def stream(self, prepared: Prepared, write: Write, deadline: float | None) -> None:
        """Serve the request; `deadline` is the client's, on the clock.

        Raises:
            RefusedError: no worker could serve it, or go on with it; or the deadline has passed.
        """
        delivery = Delivery(prepared.request, write, self._clock)
        try:
            await self._serve(prepared, delivery, deadline)
        finally:
            self._metrics.migrations.labels(prepared.model).inc(delivery.migrations)

    async def _serve(self, prepared: Prepared, delivery: Delivery, deadline: float | None) -> None:
        failed: dict[Life, RefusedError] = {}
        fruitless = 0
        while fruitless < MAX_ATTEMPTS and delivery.migrations < MAX_MIGRATIONS:
            try:
                choice = self.choose(prepared, frozenset(failed))
            except RefusedError:
                if failed:
                    break
                raise
            if failed and not delivery.begun:
                self._metrics.retries.labels(prepared.model).inc()
            before = delivery.progress
            try:
                return await self._attempt(prepared, choice, delivery, deadline)
            except StreamError as error:
                worker = choice.estimate.worker
                refused = _refused(worker, error)
                logger.warning("request %s: %s", prepared.request.request_id, refused)
                if not _worth_another(error, delivery):
                    raise refused from error
                failed[worker.life] = refused
            fruitless = 0 if delivery.progress > before else fruitless + 1
            if delivery.begun:
                prepared = prepared.resumed(delivery.rest())
        raise _given_up(prepared, delivery, failed)

    def _candidates(self, prepared: Prepared, without: frozenset[Life]) -> list[FleetWorker]:
        least = prepared.kv_tokens
        return [
            worker
            for worker in self._fleet.candidates(prepared.model)
            if worker.kv_tokens >= least and not (without and worker.life in without)
        ]

    def _allowed(self, candidates: list[FleetWorker]) -> list[FleetWorker]:
        return self._breakers.allowed(candidates, self._clock())

    def _estimate(self, prepared: Prepared, candidates: list[FleetWorker]) -> list[Estimate]:
        router = self._router_of(prepared.model)
        with self._metrics.routing_seconds.time():
            return router.estimate(prepared.prompt, candidates, self._clock())

    def _nobody(self, prepared: Prepared, without: frozenset[Life]) -> RefusedError:
        """Why no worker is a candidate."""
        now, tokens = self._clock(), prepared.prompt.tokens
        workers = self._fleet.workers(prepared.model)
        largest = max(workers, key=lambda worker: worker.kv_tokens, default=None)
        if largest is not None and largest.kv_tokens < prepared.kv_tokens:
            return RefusedError(
                StatusCode.FAILED_PRECONDITION,
                f"prompt: {tokens} tokens leave no room for output in the KV memory of any worker"
                f" of model {prepared.model!r}; the largest, {largest.id}, holds"
                f" {largest.kv_tokens} tokens; give it more (--kv-memory)",
            )

        def why(worker: FleetWorker) -> str:
            if worker.life in without:
                return "failed"
            if worker.kv_tokens < prepared.kv_tokens:
                return f"its KV memory of {worker.kv_tokens} tokens is too small for {tokens}"
            return "draining" if worker.draining else worker.belief(now).reason

        reasons = "; ".join(f"{worker.id}: {why(worker)}" for worker in workers)
        return RefusedError(
            StatusCode.UNAVAILABLE,
            f"no worker of model {prepared.model!r} can take a request now: {reasons}",
        )

    async def _attempt(
        self, prepared: Prepared, choice: Choice, delivery: Delivery, deadline: float | None
    ) -> None:
        router, worker = self._router_of(prepared.model), choice.estimate.worker
        first = not delivery.begun

        def begun(started: Started) -> None:
            router.computed(choice.reservation)
            self._breakers.answered(worker.life)
            if first:
                self._metrics.started(prepared.model, started)

        delivery.attempt(choice.estimate.expected_tokens, begun)
        timeout = None if deadline is None else max(0.0, deadline - self._clock())
        stream = WorkerStream(self._channels.get(worker.address), prepared.request, timeout)
        try:
            while (message := await stream.read()) is not None:
                await delivery.receive(message)
        except StreamError as error:
            if error.code in FAULTS:
                self._fault(worker, error)
            raise
        finally:
            stream.cancel()
            router.release(choice.reservation)
        self._breakers.succeeded(worker.life)

    def _fault(self, worker: FleetWorker, error: StreamError) -> None:
        reason = f"{error.code.name}: {error.details}"
        if self._breakers.failed(worker.life, reason, self._clock()):
            self._metrics.circuits_opened.labels(worker.life.model).inc()
            logger.warning("worker %r is left alone for a while: %s", worker.id, reason)


def _worth_another(error: StreamError, delivery: Delivery) -> bool:
    """Whether another worker may help: with what was begun, whatever happened but its deadline."""
    if delivery.begun:
        return error.code is not StatusCode.DEADLINE_EXCEEDED
    return error.code in RETRYABLE


def _given_up(
    prepared: Prepared, delivery: Delivery, failed: Mapping[Life, RefusedError]
) -> RefusedError:
    """What the client gets when several have failed, or nobody is left."""
    *_, last = failed.values()
    why = "; ".join(refused.message for refused in failed.values())
    if not delivery.begun:
        return RefusedError(last.code, why)
    return RefusedError(
        StatusCode.UNAVAILABLE,
        f"no worker is left to go on after {prepared.request.resumed_tokens} tokens: {why}",
    )


def _refused(worker: FleetWorker, error: StreamError) -> RefusedError:
    """What the client gets; what a worker says of the request itself stands for itself."""
    where = f"worker {worker.id!r} at {worker.address}: " if error.code in RETRYABLE else ""
    return RefusedError(error.code, where + error.details)
