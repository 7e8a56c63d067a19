"""What becomes of requests, in one place: counted, held against workers, and acted upon."""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from redis.exceptions import RedisError

from gateway.fleet.fleet import Fleet
from gateway.fleet.trust import Belief
from gateway.fleet.worker import Life
from gateway.route.bookings import Bookings
from gateway.route.outcome import Fate, Outcome, Promise
from gateway.route.record import Records
from gateway.route.router import Router
from gateway.scale.tally import Tally
from gateway.serve.metrics import Metrics
from gateway.summary.events import Event, Replaced
from gateway.summary.pool import Pools

logger = logging.getLogger(__name__)

STEP_SECONDS: Final = 0.2


class Outcomes:
    """Args: `records` of the workers; the `fleet`, told whom to doubt; `router_of`, which gives the
    router of a model's pool; `metrics`; `tally_of`, which gives what counts for scaling; the
    fleet's `clock`.
    """

    def __init__(
        self,
        records: Records,
        fleet: Fleet,
        router_of: Callable[[str], Router],
        *,
        metrics: Metrics,
        tally_of: Callable[[str], Tally],
        clock: Callable[[], float],
    ) -> None:
        self._records = records
        self._fleet = fleet
        self._router_of = router_of
        self._metrics = metrics
        self._tally_of = tally_of
        self._clock = clock
        self._tokens: defaultdict[Life, Counter[Fate]] = defaultdict(Counter)
        self._bookings = Bookings(records, doubt=self._believe, settled=self._settled)

    def book(self, promise: Promise, cached_tokens: int) -> None:
        """The chosen worker began, or has served, a request: so much of its prompt was cached.

        Once for each request, and before its reservation is released.
        """
        self._bookings.book(promise, cached_tokens, self._clock())

    def tokens(self, life: Life) -> Mapping[Fate, int]:
        """Prompt tokens of the requests that `life` began, by what became of them."""
        return self._tokens.get(life, {})

    def kept(self, life: Life) -> float:
        """As `Records.kept`."""
        return self._records.kept(life)

    def observe(self, model: str, event: Event) -> None:
        """Take one event of the pool of `model`, after the fleet has."""
        if isinstance(event, Replaced):
            self._bookings.replaced(Life(model, event.worker, event.epoch), self._clock())

    async def run(self, pools: Pools) -> None:
        """Have snapshots asked for, and let doubts end, until cancelled."""
        while True:
            await self.step(pools)
            await asyncio.sleep(STEP_SECONDS)

    async def step(self, pools: Pools) -> None:
        """Do what is due now."""
        lives = {worker.life for worker in self._fleet}
        asks = self._bookings.step(lives, self._clock())
        for life in self._tokens.keys() - lives:
            del self._tokens[life]
        for life, why in asks:
            self._metrics.doubts.labels(life.model).inc()
            logger.warning("worker %s of %s is doubted: %s", life.worker, life.model, why)
            try:
                await pools.get(life.model).doubt(life.worker, life.epoch, why)
            except RedisError as error:
                logger.info("worker %s: no snapshot is asked for now: %s", life.worker, error)

    def _settled(self, outcome: Outcome) -> None:
        """Count it: nothing that comes now can change it."""
        life = outcome.promise.life
        self._router_of(life.model).settled(outcome.promise)
        self._metrics.started(outcome)
        self._tally_of(life.model).settled(outcome)
        self._tokens[life].update(outcome.fates())

    def _believe(self, life: Life, belief: Belief | None) -> None:
        before = self._fleet.get(life.model, life.worker)
        self._fleet.doubt(life, belief)
        if belief is None and before is not None and before.life == life and before.doubt:
            logger.warning("worker %s of %s is believed again", life.worker, life.model)
