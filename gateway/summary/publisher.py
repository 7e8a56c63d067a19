"""Announces this gateway's reservations to the others, in a stream of the pool's own for that.

The stream is not the one of events: a reservation is worth something for seconds and may be lost,
an event repairs mirrors, and must not be pushed out of its capped stream by reservations. A
publisher appends at most once in `PACE_SECONDS`, the first reservation after a pause at once.
"""

import asyncio
import logging
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.summary.outbox import Outbox
from gateway.summary.store import pool_key

logger = logging.getLogger(__name__)

PACE_SECONDS: Final = 0.01
RETRY_SECONDS: Final = 0.2
HEARTBEAT_SECONDS: Final = 1.0
"""While something is reserved, the others hear of this gateway so often."""

STREAM_LENGTH: Final = 2_000


def stream_key(model: str) -> str:
    """The stream of announcements of the pool of `model`."""
    return f"{pool_key(model)}:announcements"


class Publisher:
    """Args: `redis`, a client that answers or fails; `model` names the pool; its `outbox`."""

    def __init__(self, redis: Redis, model: str, outbox: Outbox) -> None:
        self._redis = redis
        self._model = model
        self._outbox = outbox
        self._failing = False

    async def run(self) -> None:
        """Publish until cancelled, through whatever happens to Redis."""
        while True:
            await self._news()
            await asyncio.sleep(PACE_SECONDS if await self._publish() else RETRY_SECONDS)

    async def close(self) -> None:
        """Publish that all has ended, once `run` has been cancelled: the others need not wait."""
        self._outbox.leave()
        await self._publish()

    async def _news(self) -> None:
        """Wait for a reservation; for a release or a sign of life only so long."""
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                await self._outbox.waiting.wait()
        except TimeoutError:
            return

    async def _publish(self) -> bool:
        announcement = self._outbox.take()
        if announcement is None:
            return True
        arrived = False
        try:
            await self._redis.xadd(
                stream_key(self._model),
                {"announcement": announcement.SerializeToString()},
                maxlen=STREAM_LENGTH,
                approximate=True,
            )
            arrived = True
        except RedisError as error:
            if not self._failing:
                logger.warning("pool %s: reservations are not shared: %s", self._model, error)
        except Exception:
            # NOTE: whatever it is, routing goes on without.
            if not self._failing:
                logger.exception("pool %s: reservations are not shared", self._model)
        finally:
            # NOTE: also when it is cancelled here, as it is at the end of the gateway.
            if not arrived:
                self._outbox.lost(announcement)
        self._failing = not arrived
        return arrived
