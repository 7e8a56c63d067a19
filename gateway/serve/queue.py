"""Requests wait here for their turn at the workers, as `gateway.route.turns` decides.

A place that becomes free is given out at once: when a request ends, when a worker reports, and
every `TICK_SECONDS` for what only time brings. Whoever is cancelled leaves nothing behind.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from grpc import StatusCode
from radixgate.refused import RefusedError

from gateway.route.admission import Moved, Reason, Shed
from gateway.route.room import Room
from gateway.route.router import Estimate, mostly_held
from gateway.route.ticket import Ticket
from gateway.route.turns import TICK_SECONDS, Turns
from gateway.route.weights import Weights
from gateway.scale.demand import Waiting
from gateway.scale.tally import Tally
from gateway.serve.metrics import NO_WORKER, Metrics
from gateway.serve.prepare import Prepared
from gateway.summary.events import Departed, Event, Loaded, Registered

ANSWER_SECONDS: Final = 0.1
"""So long before its deadline a request that waits is told that its turn did not come."""


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """Args:
    limit: requests of one model that may wait for a worker, and as many for their turn.
    seconds: that a request without a deadline of its own waits at most.
    weights: of tenants.
    """

    limit: int = 1024
    seconds: float = 30.0
    weights: Weights = field(default_factory=Weights)


class Times(NamedTuple):
    """Of a request, on the clock: when it `arrived`; the `latest` time for its turn; the client's
    `deadline`, if there is one, for the `whole` request or for its turn alone.
    """

    arrived: float
    latest: float
    deadline: float | None
    whole: bool = True


class Pool(NamedTuple):
    """What queues have to know of a model's workers.

    Args:
        room: how much they can take now; None when there are none.
        estimate: what a request would cost at each; raises RefusedError when none can take it now,
            or ever.
    """

    room: Callable[[str], Room | None]
    estimate: Callable[[Prepared], list[Estimate]]


class Queue:
    """The turns at the workers of one model.

    Args:
        model: names it.
        config: of its queue.
        pool: its workers.
        metrics: counts who has its turn and who is refused.
        tally: counts the same, for scaling.
        clock: the fleet's, in seconds.
    """

    def __init__(
        self,
        model: str,
        config: QueueConfig,
        pool: Pool,
        *,
        metrics: Metrics,
        tally: Tally,
        clock: Callable[[], float],
    ) -> None:
        self._model = model
        self._config = config
        self._pool = pool
        self._metrics = metrics
        self._tally = tally
        self._clock = clock
        self._turns = Turns(config.limit, config.weights.of, lambda: pool.room(model))
        self._answers: dict[Ticket, asyncio.Future[Shed | None]] = {}
        self._tick: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """How many wait."""
        return len(self._turns)

    def waiting(self) -> Waiting:
        """Who waits now."""
        arrived = sum(ticket.arrived for ticket in self._answers)
        return Waiting(len(self._answers), len(self._answers) * self._clock() - arrived)

    def drain_seconds(self) -> float:
        """How long until all that wait have had their turn; 0 until that is measured."""
        return self._turns.drain_seconds(self._clock())

    @asynccontextmanager
    async def turn(self, prepared: Prepared, times: Times) -> AsyncIterator[None]:
        """Serve the request inside; raises as `enter`."""
        await self.enter(prepared, times)
        began = self._clock()
        try:
            yield
            self._turns.served(self._clock() - began)
        finally:
            self.move()

    async def enter(self, prepared: Prepared, times: Times) -> None:
        """Return when it is the request's turn. Reserve at the router before awaiting anything.

        Raises:
            RefusedError: RESOURCE_EXHAUSTED, too many wait, or it would be late; UNAVAILABLE, there
                is no worker; FAILED_PRECONDITION, no worker could ever take it.
        """
        if not self._turns.takes(prepared.prompt.tokens, self._clock()):
            await self._wait(prepared, times)
        waited = self._clock() - times.arrived
        self._tally.entered(prepared.prompt, waited)
        self._metrics.queue_seconds.labels(self._model).observe(waited)
        tenant = self._config.weights.label(prepared.request.scope.tenant)
        self._metrics.entered_tokens.labels(self._model, tenant).inc(prepared.prompt.tokens)

    def left(self, seconds: float | None) -> None:
        """A request that had its turn has ended elsewhere; well if after so many `seconds`."""
        if seconds is not None:
            self._turns.served(seconds)
        self.move()

    def move(self) -> None:
        """Give out what room there is."""
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        self._tell(self._turns.move(self._clock()))

    def observe(self, event: Event) -> None:
        """Take one event of the pool, after fleet and router have."""
        match event:
            case Loaded(load=load) if not load.draining:
                self.move()
            case Loaded() | Registered() | Departed():
                self._turns.changed()
                self.move()

    async def _wait(self, prepared: Prepared, times: Times) -> None:
        ticket = self._ticket(prepared, times)
        answer = asyncio.get_running_loop().create_future()
        self._answers[ticket] = answer
        try:
            self._tell(self._turns.offer(ticket, self._clock()))
            if shed := await answer:
                raise self._refusal(prepared, times, shed)
        except asyncio.CancelledError:
            self._answers.pop(ticket, None)
            self._turns.withdraw(ticket)
            self.move()
            raise
        self._turns.entered(ticket)

    def _tell(self, moved: Moved) -> None:
        """Tell those that wait what became of them, and see to it that the others move again."""
        for each in moved.shed:
            self._answer(each.ticket, each)
        for ticket in moved.entered:
            self._answer(ticket, None)
        if len(self) and self._tick is None:
            self._tick = asyncio.get_running_loop().call_later(TICK_SECONDS, self.move)

    def _answer(self, ticket: Ticket, shed: Shed | None) -> None:
        answer = self._answers.pop(ticket)
        # NOTE: the future of a task that is being cancelled is done before the task knows.
        if not answer.done():
            answer.set_result(shed)

    def _ticket(self, prepared: Prepared, times: Times) -> Ticket:
        estimates: list[Estimate] = []
        try:
            estimates = self._pool.estimate(prepared)
        except RefusedError as refusal:
            if refusal.code is not StatusCode.UNAVAILABLE:
                raise
        expected = max((each.expected_tokens for each in estimates), default=0)
        return Ticket(
            tenant=prepared.request.scope.tenant,
            priority=prepared.request.priority,
            tokens=max(1, prepared.prompt.tokens - expected),
            held=mostly_held(prepared.prompt, estimates),
            arrived=times.arrived,
            latest=times.latest,
            deadline=times.deadline if times.whole and times.deadline is not None else math.inf,
        )

    def _refusal(self, prepared: Prepared, times: Times, shed: Shed) -> RefusedError:
        seconds = self._clock() - times.arrived
        self._tally.refused(seconds)
        waited = f"it waited {seconds:.1f} s, and {len(self)} others wait"
        nowhere = None if self._turns.staffed else self._nowhere(prepared)
        self._metrics.shed.labels(self._model, NO_WORKER if nowhere else shed.reason.value).inc()
        if nowhere:
            return RefusedError(nowhere.code, f"{nowhere.message}; {waited}")
        limit = f"within {self._config.seconds:g} s (--queue-seconds)"
        if times.deadline is not None:
            limit = f"before its deadline, {times.deadline - times.arrived:.1f} s after it came"
        why = {
            Reason.FULL: "as many requests wait as may (--queue-limit), all before this one",
            Reason.LATE: f"the request cannot be finished {limit}",
            Reason.EXPIRED: f"its turn did not come {limit}",
        }
        return RefusedError(
            StatusCode.RESOURCE_EXHAUSTED,
            f"model {self._model!r} is busy: {why[shed.reason]}; {waited};"
            f" retry in {shed.retry_seconds:.1f} s",
            shed.retry_seconds,
        )

    def _nowhere(self, prepared: Prepared) -> RefusedError | None:
        """Why no worker can take the request; None when one can."""
        try:
            self._pool.estimate(prepared)
        except RefusedError as refusal:
            return refusal
        return None
