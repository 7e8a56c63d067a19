"""Sends a prepared request to the best worker, and to the next best while nothing was delivered."""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from grpc import StatusCode
from radixgate.refused import RefusedError
from radixgate.v1.generate_pb2 import Started

from gateway.fleet.channels import Channels
from gateway.fleet.fleet import Fleet
from gateway.fleet.worker import FleetWorker
from gateway.route.reservations import Reservation
from gateway.route.router import Estimate, Router
from gateway.serve.forward import StreamError, Write, forward
from gateway.serve.metrics import Metrics
from gateway.serve.prepare import Prepared

logger = logging.getLogger(__name__)

MAX_ATTEMPTS: Final = 3
# What another worker may well do better.
RETRYABLE: Final = {StatusCode.UNAVAILABLE, StatusCode.RESOURCE_EXHAUSTED, StatusCode.INTERNAL}

NONE: Final[frozenset[str]] = frozenset()


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
        metrics: counts predictions, deliveries and retries.
        clock: the fleet's, in seconds.
    """

    def __init__(
        self,
        fleet: Fleet,
        router_of: Callable[[str], Router],
        channels: Channels,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self._fleet = fleet
        self._router_of = router_of
        self._channels = channels
        self._metrics = metrics
        self._clock = clock

    def estimates(self, prepared: Prepared, without: frozenset[str] = NONE) -> list[Estimate]:
        """Everyone who may serve the request, best first; nobody that `without` names.

        Raises:
            RefusedError: FAILED_PRECONDITION, the prompt is too long for the KV memory of every
                worker; UNAVAILABLE, there is no one now.
        """
        now, tokens = self._clock(), prepared.prompt.tokens
        candidates = [
            worker
            for worker in self._fleet.candidates(prepared.model)
            if worker.id not in without and worker.kv_tokens > tokens
        ]
        if not candidates:
            raise self._nobody(prepared, without, now)
        with self._metrics.routing_seconds.time():
            return self._router_of(prepared.model).estimate(prepared.prompt, candidates, now)

    def choose(self, prepared: Prepared, without: frozenset[str] = NONE) -> Choice:
        """The best worker, reserved. Raises as `estimates`."""
        best = self.estimates(prepared, without)[0]
        router = self._router_of(prepared.model)
        return Choice(best, router.reserve(prepared.prompt, best, self._clock()))

    async def stream(self, prepared: Prepared, write: Write, deadline: float | None) -> None:
        """Serve the request; `deadline` is the client's, on the clock.

        Raises:
            RefusedError: no worker could serve it, or the one that had begun failed.
        """
        failed: dict[str, RefusedError] = {}
        while len(failed) < MAX_ATTEMPTS:
            try:
                choice = self.choose(prepared, frozenset(failed))
            except RefusedError:
                if failed:
                    break
                raise
            if failed:
                self._metrics.retries.labels(prepared.model).inc()
            try:
                return await self._attempt(prepared, choice, write, deadline)
            except StreamError as error:
                worker = choice.estimate.worker
                refused = _refused(worker, error)
                logger.warning("request %s: %s", prepared.request.request_id, refused)
                if error.delivered or error.code not in RETRYABLE:
                    raise refused from error
                failed[worker.id] = refused
        *_, last = failed.values()
        raise RefusedError(last.code, "; ".join(refused.message for refused in failed.values()))

    def _nobody(self, prepared: Prepared, without: frozenset[str], now: float) -> RefusedError:
        """Why no worker is a candidate."""
        tokens, workers = prepared.prompt.tokens, self._fleet.workers(prepared.model)
        largest = max(workers, key=lambda worker: worker.kv_tokens, default=None)
        if largest is not None and largest.kv_tokens <= tokens:
            return RefusedError(
                StatusCode.FAILED_PRECONDITION,
                f"prompt: {tokens} tokens leave no room for output in the KV memory of any worker"
                f" of model {prepared.model!r}; the largest, {largest.id}, holds"
                f" {largest.kv_tokens} tokens; give it more (--kv-memory)",
            )

        def why(worker: FleetWorker) -> str:
            if worker.id in without:
                return "failed"
            if worker.kv_tokens <= tokens:
                return f"its KV memory of {worker.kv_tokens} tokens is too small for {tokens}"
            return "draining" if worker.draining else worker.belief(now).reason

        reasons = "; ".join(f"{worker.id}: {why(worker)}" for worker in workers)
        return RefusedError(
            StatusCode.UNAVAILABLE,
            f"no worker of model {prepared.model!r} can take a request now: {reasons}",
        )

    async def _attempt(
        self, prepared: Prepared, choice: Choice, write: Write, deadline: float | None
    ) -> None:
        router = self._router_of(prepared.model)

        def begun(started: Started) -> None:
            router.computed(choice.reservation)
            self._metrics.started(prepared.model, started)

        try:
            await forward(
                self._channels.get(choice.estimate.worker.address),
                prepared.request,
                write,
                timeout=None if deadline is None else max(0.0, deadline - self._clock()),
                predicted_tokens=choice.estimate.expected_tokens,
                begun=begun,
            )
        finally:
            router.release(choice.reservation)


def _refused(worker: FleetWorker, error: StreamError) -> RefusedError:
    """What the client gets; what a worker says of the request itself stands for itself."""
    where = f"worker {worker.id!r} at {worker.address}"
    if error.delivered:
        return RefusedError(error.code, f"{where} failed in mid-stream: {error.details}")
    if error.code in RETRYABLE:
        return RefusedError(error.code, f"{where}: {error.details}")
    return RefusedError(error.code, error.details)
