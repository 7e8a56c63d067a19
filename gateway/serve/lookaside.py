"""Requests that are routed to their clients, which call the worker themselves and tell the end.

The id of a reservation names the gateway that made it. The end may be told to any gateway: one that
did not make the reservation passes it on, in the stream of announcements. A client that never tells
holds a reservation for as long as reservations live, and is remembered for longer, so that long
answers count too. What clients tell counts as what a gateway sees itself.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from weakref import ref

from grpc import StatusCode
from radixgate.refused import RefusedError
from radixgate.v1.gateway_pb2 import (
    FINISH_OUTCOME_COUNTED,
    FINISH_OUTCOME_ENDED_BEFORE,
    FINISH_OUTCOME_PASSED_ON,
    FinishRequest,
    FinishResponse,
    RouteResponse,
)

from gateway.fleet.fleet import Fleet
from gateway.fleet.worker import Life
from gateway.route.breaker import Breakers
from gateway.route.outcome import Promise
from gateway.route.reservation import Reservation
from gateway.route.router import Router
from gateway.serve import views
from gateway.serve.choose import Choice, Chooser
from gateway.serve.metrics import Metrics
from gateway.serve.outcomes import Outcomes
from gateway.serve.prepare import Prepared
from gateway.serve.queues import Queues
from gateway.summary.pool import Pool

logger = logging.getLogger(__name__)

REMEMBERED_SECONDS: Final = 600.0
REMEMBERED_LIMIT: Final = 65_536
MESSAGE_LENGTH: Final = 200
"""Characters of what a worker said that are kept."""

ID_LENGTH: Final = 1_024
"""Characters of the id of a reservation, at most: it is passed on as it comes."""

_CODES: Final = {code.value[0]: code for code in StatusCode}


class ReservationId(NamedTuple):
    """Args: the `gateway` that made it, one life of it; `number`, from 1; the `model`."""

    gateway: str
    number: int
    model: str

    def __str__(self) -> str:
        return f"{self.gateway}-{self.number}-{self.model}"

    @classmethod
    def parse(cls, text: str) -> "ReservationId":
        """From what `str` makes of it.

        Raises:
            RefusedError: INVALID_ARGUMENT, it is no such thing.
        """
        gateway, _, rest = text.partition("-")
        number, _, model = rest.partition("-")
        if gateway and model and number.isdecimal() and len(text) <= ID_LENGTH:
            return cls(gateway, int(number), model)
        raise RefusedError(
            StatusCode.INVALID_ARGUMENT,
            f"reservation: {text[:MESSAGE_LENGTH]!r} names none; send the one that Route answered"
            " with",
        )


class _Routed(NamedTuple):
    """A request on its way: its `reservation`, as long as that lives, and what was promised."""

    reservation: ref[Reservation]
    promise: Promise


class Lookaside:
    """Routes requests to their clients, and hears how they end.

    Args:
        gateway: names this life of this gateway, to all gateways.
        fleet: the workers there are.
        chooser: chooses them, and is told who fails.
        router_of: gives the router of a model's pool, which is told what ends.
        queues: told what ends.
        breakers: told who answers.
        outcomes: told what the workers had cached.
        metrics: counts clients that never tell.
        find_pool: the pool of a model, if there is one, through which other gateways are told.
        clock: the fleet's, in seconds.
    """

    def __init__(
        self,
        gateway: str,
        *,
        fleet: Fleet,
        chooser: Chooser,
        router_of: Callable[[str], Router],
        queues: Queues,
        breakers: Breakers,
        outcomes: Outcomes,
        metrics: Metrics,
        find_pool: Callable[[str], Pool | None],
        clock: Callable[[], float],
    ) -> None:
        self._gateway = gateway
        self._fleet = fleet
        self._chooser = chooser
        self._router_of = router_of
        self._queues = queues
        self._breakers = breakers
        self._outcomes = outcomes
        self._metrics = metrics
        self._find_pool = find_pool
        self._clock = clock
        self._last = 0
        # In the order of routing.
        self._routed: dict[ReservationId, _Routed] = {}

    def route(self, prepared: Prepared, without: Iterable[str]) -> RouteResponse:
        """Choose and reserve, `without` the workers of these ids.

        Raises:
            RefusedError: there is nobody else, as `Chooser.estimates`.
        """
        failed = self.lives(prepared.model, without)
        estimates = self._chooser.estimates(prepared, failed)
        choice = self._chooser.reserve(prepared, estimates, seen=False)
        barred = self._chooser.barred(prepared, failed)
        worker = choice.estimate.worker
        return RouteResponse(
            request=prepared.request,
            worker=worker.id,
            address=worker.address,
            prompt_tokens=prepared.prompt.tokens,
            matched_tokens=choice.estimate.expected_tokens,
            reservation=str(self._remember(prepared, choice)),
            reason=views.reason(estimates, barred, prepared.prompt),
        )

    def lives(self, model: str, workers: Iterable[str]) -> frozenset[Life]:
        """The current lives of `workers`, those that there are."""
        found = (self._fleet.get(model, worker) for worker in workers)
        return frozenset(worker.life for worker in found if worker)

    def finish(self, request: FinishRequest) -> FinishResponse:
        """Take the end of a request, or pass it on to the gateway that routed it.

        Raises:
            RefusedError: INVALID_ARGUMENT, a value is out of its range; NOT_FOUND, there was never
                such a reservation; UNAVAILABLE, it cannot be passed on now.
        """
        id_ = ReservationId.parse(request.reservation)
        code = _code(request.status)
        # NOTE: what is passed on is kept in Redis, and must not be as long as a client likes.
        request.message = request.message[:MESSAGE_LENGTH]
        request.DiscardUnknownFields()
        if id_.gateway != self._gateway:
            self._pass_on(id_, request)
            return FinishResponse(outcome=FINISH_OUTCOME_PASSED_ON)
        if id_.number > self._last:
            raise RefusedError(
                StatusCode.NOT_FOUND, f"reservation {request.reservation!r} was never made"
            )
        self._forget_old(self._clock())
        routed = self._routed.get(id_)
        if routed is None:
            return FinishResponse(outcome=FINISH_OUTCOME_ENDED_BEFORE)
        prompt_tokens = routed.promise.prompt_tokens
        if request.cached_tokens > prompt_tokens:
            raise RefusedError(
                StatusCode.INVALID_ARGUMENT,
                f"cached_tokens: {request.cached_tokens}, of a prompt of {prompt_tokens}",
            )
        del self._routed[id_]
        self._end(routed, code, request)
        return FinishResponse(outcome=FINISH_OUTCOME_COUNTED)

    def heard(self, request: FinishRequest) -> None:
        """Another gateway passes on the end of a request, to all."""
        try:
            if ReservationId.parse(request.reservation).gateway == self._gateway:
                self.finish(request)
        except RefusedError as refusal:
            logger.warning("a Finish that another gateway passed on is refused: %s", refusal)

    def _remember(self, prepared: Prepared, choice: Choice) -> ReservationId:
        now = self._clock()
        self._forget_old(now)
        if len(self._routed) >= REMEMBERED_LIMIT:
            self._forget(next(iter(self._routed)))
        self._last += 1
        id_ = ReservationId(self._gateway, self._last, prepared.model)
        self._routed[id_] = _Routed(ref(choice.reservation), choice.promise)
        return id_

    def _forget_old(self, now: float) -> None:
        while self._routed:
            id_, oldest = next(iter(self._routed.items()))
            if now - oldest.promise.made_at <= REMEMBERED_SECONDS:
                return
            self._forget(id_)

    def _forget(self, id_: ReservationId) -> None:
        del self._routed[id_]
        self._metrics.routed.labels(id_.model, "silent").inc()

    def _end(self, routed: _Routed, code: StatusCode, request: FinishRequest) -> None:
        life, model = routed.promise.life, routed.promise.life.model
        if request.HasField("cached_tokens"):
            self._breakers.answered(life)
            self._outcomes.book(routed.promise, request.cached_tokens)
        if reservation := routed.reservation():
            self._router_of(model).release(reservation)
        ended_well = code is StatusCode.OK
        if ended_well:
            self._breakers.succeeded(life)
        else:
            self._chooser.blame(life, code, f"{request.message} (so says a client)")
        self._metrics.routed.labels(model, "finished").inc()
        self._queues.of(model).left(self._clock() - routed.promise.made_at if ended_well else None)

    def _pass_on(self, id_: ReservationId, request: FinishRequest) -> None:
        pool = self._find_pool(id_.model)
        if pool is None:
            raise RefusedError(
                StatusCode.NOT_FOUND,
                f"reservation {request.reservation!r} is of model {id_.model!r}, of which this"
                " gateway knows no worker",
            )
        why = pool.problem and f"Redis cannot be used: {pool.problem}"
        if not why and not pool.outbox.pass_on(request):
            why = "too much is waiting for that"
        if why:
            raise RefusedError(
                StatusCode.UNAVAILABLE,
                f"reservation {request.reservation!r} was made by gateway {id_.gateway}, which"
                f" cannot be told now: {why}; try again, or let it expire",
            )


def _code(status: int) -> StatusCode:
    if status not in _CODES:
        raise RefusedError(
            StatusCode.INVALID_ARGUMENT,
            f"status: {status} is no gRPC status; they are 0 to {max(_CODES)}, and 0 is OK",
        )
    return _CODES[status]
