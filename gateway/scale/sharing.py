"""Shares what each gateway counts with all others, in a stream of each pool's own in Redis.

The stream is the memory of the last minutes, also for a gateway that starts. While Redis is away a
gateway goes on with what it knows and what it counts itself, and knows that this is not all.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, cast

from radixgate.v1.demand_pb2 import Demand
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.scale.demand import Demands
from gateway.summary.store import pool_key

logger = logging.getLogger(__name__)

SHARE_SECONDS: Final = 2.0
SAMPLE_SECONDS: Final = 0.1
SAMPLED_AT_ONCE: Final = 16
"""Prompts whose boundaries are hashed before the event loop has its turn."""

READ_AT_ONCE: Final = 20
"""Entries in one answer of Redis."""


def stream_key(model: str) -> str:
    """The stream of entries of the pool of `model`."""
    return f"{pool_key(model)}:demand"


class Sharing:
    """Args: `redis`, a client that answers or fails; the `demands` that are shared."""

    def __init__(self, redis: Redis, demands: Demands) -> None:
        self._redis = redis
        self._demands = demands
        self._failing = False

    async def run(self, models: Callable[[], Iterable[str]]) -> None:
        """Share the demand on all `models` until cancelled, through whatever happens to Redis."""
        await asyncio.gather(self._keep_sharing(models), self._keep_sampling())

    async def share(self, models: Iterable[str]) -> None:
        """Say what was counted of `models`, and hear the same of the others."""
        problems = await asyncio.gather(*map(self._share, models))
        problem = next(filter(None, problems), None)
        if problem and not self._failing:
            logger.warning("what is counted for scaling is not shared: %s", problem)
        self._failing = problem is not None

    async def _keep_sharing(self, models: Callable[[], Iterable[str]]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + SHARE_SECONDS
            await self.share(models())
            await asyncio.sleep(max(0.0, due - loop.time()))

    async def _keep_sampling(self) -> None:
        """Also while Redis takes its time, or prompts would pile up meanwhile."""
        while True:
            for pool in [*self._demands]:
                # NOTE: between two of them others have their turn.
                while pool.tally.sample(SAMPLED_AT_ONCE):  # noqa: ASYNC110
                    await asyncio.sleep(0)
            await asyncio.sleep(SAMPLE_SECONDS)

    async def _share(self, model: str) -> str | None:
        """Why that failed."""
        pool, demand = self._demands.pool(model), self._demands.take(model)
        try:
            await self._publish(model, demand)
            while await self._read(model):
                pass
        except RedisError as error:
            problem = str(error) or type(error).__name__
        except Exception as error:
            # NOTE: whatever another gateway wrote, requests are served and the rest is read.
            logger.exception("pool %s: cannot share what is counted for scaling", model)
            problem = repr(error)
        else:
            return None
        pool.add_alone(self._demands.now(), demand)
        return f"pool {model}: {problem}"

    async def _publish(self, model: str, demand: Demand) -> None:
        memory = self._demands.spans.memory
        key, oldest = stream_key(model), int((self._demands.now() - memory) * 1000)
        added = await self._redis.xadd(
            key, {"demand": demand.SerializeToString()}, minid=str(max(0, oldest))
        )
        await self._redis.expire(key, int(2 * memory))
        id_ = cast(bytes, added).decode()
        self._demands.set_now(_seconds(id_))
        pool = self._demands.pool(model)
        if pool.last_id and _order(id_) <= _order(pool.last_id):
            # NOTE: another Redis, whose clock is behind: what was read there before is past.
            pool.last_id = ""

    async def _read(self, model: str) -> bool:
        """Whether there is more."""
        pool = self._demands.pool(model)
        entries = cast(
            list[tuple[bytes, dict[bytes, bytes]]],
            await self._redis.xrange(
                stream_key(model),
                min=f"({pool.last_id}" if pool.last_id else "-",
                count=READ_AT_ONCE,
            ),
        )
        for raw_id, fields in entries:
            pool.last_id = raw_id.decode()
            pool.add(_seconds(pool.last_id), Demand.FromString(fields[b"demand"]))
            # NOTE: a full sample takes up to 10 ms to take in, and others wait.
            await asyncio.sleep(0)
        return len(entries) == READ_AT_ONCE


def _order(id_: str) -> tuple[int, ...]:
    return tuple(map(int, id_.split("-")))


def _seconds(id_: str) -> float:
    return _order(id_)[0] / 1000
