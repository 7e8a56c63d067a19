"""The queue of each model, and the wait for a worker that says how to tokenize for a model."""

import asyncio
from collections import Counter
from collections.abc import Callable

from grpc import StatusCode
from radixgate.refused import RefusedError
from radixgate.v1.worker_pb2 import ModelCard

from gateway.route.turns import TICK_SECONDS
from gateway.scale.demand import Waiting
from gateway.scale.tally import Tally
from gateway.serve.metrics import NO_WORKER, Metrics
from gateway.serve.models import Models
from gateway.serve.queue import (
    ANSWER_SECONDS,
    Pool,
    Queue,
    QueueConfig,
    Times,
)
from gateway.summary.events import Event


class Queues:
    """The queue of each model pool.

    Args:
        config: of all of them.
        models: finds the card of a model.
        pool: tells of its workers.
        metrics: counts who has its turn and who is refused.
        tally_of: gives what counts the same for scaling, of a model.
        clock: the fleet's, in seconds.
    """

    def __init__(
        self,
        config: QueueConfig,
        models: Models,
        pool: Pool,
        *,
        metrics: Metrics,
        tally_of: Callable[[str], Tally],
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._models = models
        self._pool = pool
        self._metrics = metrics
        self._tally_of = tally_of
        self._clock = clock
        self._queues: dict[str, Queue] = {}
        # Requests that wait for a first worker, by model; "" while there is no model at all.
        self._early: Counter[str] = Counter()

    def times(self, remaining: float | None) -> Times:
        """For a request that comes now; `remaining` seconds are left to its client, if limited."""
        now = self._clock()
        if remaining is None:
            return Times(now, now + self._config.seconds, None)
        return Times(now, now + remaining - ANSWER_SECONDS, now + remaining)

    def of(self, model: str) -> Queue:
        """The queue of a model that has, or had, workers."""
        queue = self._queues.get(model)
        if queue is None:
            queue = Queue(
                model,
                self._config,
                self._pool,
                metrics=self._metrics,
                tally=self._tally_of(model),
                clock=self._clock,
            )
            self._queues[model] = queue
        return queue

    def waiting(self) -> Counter[str]:
        """How many requests wait, by model; "" stands for no model yet."""
        waiting = self._early.copy()
        waiting.update({model: len(queue) for model, queue in self._queues.items()})
        return waiting

    def waiting_for(self, model: str) -> Waiting:
        """Who waits for `model`, or, if it has no worker, may be waiting for it."""
        queue = self._queues.get(model)
        waiting = queue.waiting() if queue else Waiting(0, 0.0)
        early = self._early[model] + self._early[""]
        return Waiting(waiting.requests + early, waiting.seconds)

    def observe(self, model: str, event: Event) -> None:
        """Take one event of the pool of `model`, after fleet and router have."""
        if model in self._queues:
            self._queues[model].observe(event)

    async def card(self, name: str, times: Times) -> ModelCard:
        """The card of the model that `name` means, as soon as one of its workers is there.

        Raises:
            RefusedError: as `Models.card`, UNAVAILABLE not before the request has waited as long as
                it may, or when too many wait.
        """
        try:
            return self._models.card(name)
        except RefusedError as refusal:
            if refusal.code is not StatusCode.UNAVAILABLE:
                raise
            model, nobody = self._known(name), refusal
        waiting = self._early[model]
        if waiting >= self._config.limit:
            raise self._without_card(model, nobody, f"{waiting} requests wait for one already")
        self._early[model] += 1
        try:
            return await self._first_card(name, model, times)
        finally:
            self._early[model] -= 1

    async def _first_card(self, name: str, model: str, times: Times) -> ModelCard:
        while True:
            now = self._clock()
            try:
                return self._models.card(name)
            except RefusedError as refusal:
                if refusal.code is not StatusCode.UNAVAILABLE:
                    raise
                if now >= times.latest:
                    waited = f"waited {now - times.arrived:.1f} s for one"
                    if model:
                        self._tally_of(model).refused(now - times.arrived)
                    raise self._without_card(model, refusal, waited) from refusal
            await asyncio.sleep(min(TICK_SECONDS, times.latest - now))

    def _known(self, name: str) -> str:
        try:
            return self._models.resolve(name)
        except RefusedError:
            return ""

    def _without_card(self, model: str, nobody: RefusedError, why: str) -> RefusedError:
        self._metrics.shed.labels(model, NO_WORKER).inc()
        return RefusedError(nobody.code, f"{nobody.message}; {why}")
