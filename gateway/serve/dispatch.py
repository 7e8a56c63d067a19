"""Sends a prepared request to the best worker, and to the next best while nothing was delivered."""

from collections.abc import Callable
from typing import Final, NamedTuple

from grpc import StatusCode
from radixgate.v1.generate_pb2 import Started

from gateway.fleet.channels import Channels
from gateway.fleet.fleet import Fleet
from gateway.route.reservations import Reservation
from gateway.route.router import Estimate, Router
from gateway.serve.forward import StreamError, Write, forward
from gateway.serve.metrics import Metrics
from gateway.serve.prepare import Prepared
from gateway.serve.refused import RefusedError

MAX_ATTEMPTS: Final = 3
# What another worker may well do better.
RETRYABLE: Final = {StatusCode.UNAVAILABLE, StatusCode.RESOURCE_EXHAUSTED, StatusCode.INTERNAL}

NONE: Final[frozenset[str]] = frozenset()


class Choice(NamedTuple):
    """The worker that gets a request, and what is reserved there until `Dispatcher.release`."""

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
            RefusedError: UNAVAILABLE, there is no one.
        """
        now = self._clock()
        candidates = [
            worker for worker in self._fleet.candidates(prepared.model) if worker.id not in without
        ]
        if not candidates:
            workers = "; ".join(
                f"{worker.id}: {'failed' if worker.id in without else worker.belief(now).reason}"
                for worker in self._fleet.workers(prepared.model)
            )
            raise RefusedError(
                StatusCode.UNAVAILABLE,
                f"no worker of model {prepared.model!r} can take a request now: {workers}",
            )
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
        while True:
            try:
                choice = self.choose(prepared, frozenset(failed))
            except RefusedError:
                if failed:
                    raise list(failed.values())[-1] from None
                raise
            worker = choice.estimate.worker
            try:
                return await self._attempt(prepared, choice, write, deadline)
            except StreamError as error:
                where = f"worker {worker.id!r} at {worker.address}"
                if error.delivered:
                    message = f"{where} failed in mid-stream: {error.details}"
                    raise RefusedError(error.code, message) from error
                if error.code not in RETRYABLE:
                    raise RefusedError(error.code, error.details) from error
                failed[worker.id] = RefusedError(error.code, f"{where}: {error.details}")
                if len(failed) == MAX_ATTEMPTS:
                    raise failed[worker.id] from error
                self._metrics.retries.labels(prepared.model).inc()

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
