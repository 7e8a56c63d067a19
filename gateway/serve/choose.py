"""Which worker gets a request: those that may, what each would cost, and the best, reserved."""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from grpc import StatusCode
from radixgate.refused import RefusedError

from gateway.fleet.fleet import Fleet
from gateway.fleet.worker import FleetWorker, Life
from gateway.route.breaker import Breakers
from gateway.route.outcome import Promise
from gateway.route.reservation import Reservation
from gateway.route.router import Estimate, Router
from gateway.serve.metrics import Metrics
from gateway.serve.prepare import Prepared

logger = logging.getLogger(__name__)

NONE: Final[frozenset[Life]] = frozenset()
# What speaks against the worker.
FAULTS: Final = {StatusCode.UNAVAILABLE, StatusCode.INTERNAL, StatusCode.UNKNOWN}


class Choice(NamedTuple):
    """The worker that gets a request, what is reserved there for it, and what is expected of it."""

    estimate: Estimate
    reservation: Reservation
    promise: Promise


class Chooser:
    """Chooses among the workers of a pool.

    Args:
        fleet: the workers there are.
        router_of: gives the router of a model's pool.
        breakers: keep requests from workers that fail again and again.
        metrics: told how long it takes, and of circuits that open.
        clock: the fleet's, in seconds.
    """

    def __init__(
        self,
        fleet: Fleet,
        router_of: Callable[[str], Router],
        breakers: Breakers,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self._fleet = fleet
        self._router_of = router_of
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
        return self.reserve(prepared, self.estimates(prepared, without), seen=True)

    def reserve(self, prepared: Prepared, estimates: list[Estimate], *, seen: bool) -> Choice:
        """The first of `estimates`, reserved; `seen` as in `Router.reserve`."""
        best = estimates[0]
        router, now = self._router_of(prepared.model), self._clock()
        self._breakers.sent(best.worker.life, now)
        reservation = router.reserve(prepared.prompt, best, now, seen=seen)
        promise = router.promise(prepared.prompt, estimates, reservation, now)
        return Choice(best, reservation, promise)

    def barred(self, prepared: Prepared, without: frozenset[Life] = NONE) -> list[Estimate]:
        """What `estimates` leaves out because it failed too often, best first."""
        if not self._breakers:
            return []
        candidates = self._candidates(prepared, without)
        allowed = {worker.life for worker in self._allowed(candidates)}
        barred = [worker for worker in candidates if worker.life not in allowed]
        return self._estimate(prepared, barred) if barred else []

    def blame(self, life: Life, code: StatusCode, details: str) -> None:
        """A worker ended a request with an error: if that speaks against it, count it."""
        reason = f"{code.name}: {details}"
        if code in FAULTS and self._breakers.failed(life, reason, self._clock()):
            self._metrics.circuits_opened.labels(life.model).inc()
            logger.warning("worker %r is left alone for a while: %s", life.worker, reason)

    def circuit(self, worker: FleetWorker) -> str:
        """Why requests are kept away from `worker`; empty when they are not."""
        return self._breakers.reason(worker.life, self._clock())

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
            return worker.closed or worker.belief(now).reason

        reasons = "; ".join(f"{worker.id}: {why(worker)}" for worker in workers)
        return RefusedError(
            StatusCode.UNAVAILABLE,
            f"no worker of model {prepared.model!r} can take a request now: {reasons}",
        )
