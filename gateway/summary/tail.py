"""Follows the streams of one model pool, so that the mirror holds what Redis holds.

At the start, after each break, and when the stream shows that events are missing, it reads all of
the pool again. It never drops what Redis does not have: a Redis that lost its memory is filled
again by the workers, and a worker that is gone is dropped when its lease passes. Announcements of
reservations are passed on as they come: those that are missed are not worth reading again.
"""

import asyncio
import logging
import time
from typing import Protocol

from radixgate.v1.peer_pb2 import Announcement
from redis.exceptions import RedisError

from gateway.summary.events import Event, WorkerRecord
from gateway.summary.reader import Heard, PoolReader, Position

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.2


class Follower(Protocol):
    """What a tail feeds."""

    def take(self, event: Event) -> bool:
        """Take the next event; False when its worker has to be restored."""

    async def restore(self, record: WorkerRecord) -> None:
        """Take all that Redis holds of a worker."""

    def hear(self, announcement: Announcement) -> None:
        """Take what a gateway, maybe this one, has announced."""


class Tail:
    """Args: `reader` of the pool in Redis; `model` names it in logs; `follower` is fed; `block`,
    seconds to wait for news in one read.

    Attributes:
        position: up to where the mirror has taken the stream.
        problem: why Redis cannot be followed now; empty while it can.
        lag: seconds from when the last event was written to when it was taken here.
        settled: set when Redis was reached, or not, for the first time.
        complete: whether all that Redis held was ever read.
    """

    def __init__(self, reader: PoolReader, model: str, follower: Follower, block: float) -> None:
        self._reader = reader
        self._model = model
        self._follower = follower
        self._block_ms = max(1, round(block * 1_000))
        self.position = Position(b"0-0", None)
        self._heard = b"0-0"
        self.problem = ""
        self.lag = 0.0
        self.settled = asyncio.Event()
        self.complete = False

    async def run(self) -> None:
        """Follow until cancelled, through whatever happens to Redis."""
        while True:
            try:
                await self._follow()
            except RedisError as error:
                await self._broken(error)
            except Exception as error:
                # NOTE: whatever it is, routing goes on from the mirror, and health says so.
                logger.exception("pool %s: cannot follow its events", self._model)
                await self._broken(error)

    async def _follow(self) -> None:
        await self._rebuild()
        self._reached()
        while True:
            for entry in await self._reader.read(self.position, self._heard, self._block_ms):
                if isinstance(entry, Heard):
                    self._heard = entry.id
                    self._follower.hear(entry.announcement)
                    continue
                if self.position.n is None or entry.position.n != self.position.n + 1:
                    logger.info("pool %s: events are missing, reading all of it", self._model)
                    return
                if not self._follower.take(entry.event):
                    await self._restore(entry.event.worker)
                self.position = entry.position
                self.lag = max(0.0, time.time() - entry.milliseconds / 1_000)

    async def _rebuild(self) -> None:
        # NOTE: the position first, so that no event after what is read can be missed.
        position = await self._reader.end()
        self._heard = await self._reader.last_announcement()
        for worker in await self._reader.workers():
            await self._restore(worker)
        self.position = position

    async def _restore(self, worker: str) -> None:
        record = await self._reader.record(worker)
        if record is not None:
            await self._follower.restore(record)

    def _reached(self) -> None:
        if self.problem:
            logger.warning("pool %s: Redis is back", self._model)
        self.problem = ""
        self.complete = True
        self.settled.set()

    async def _broken(self, error: Exception) -> None:
        if not self.problem:
            logger.warning("pool %s: Redis is away, going on without: %s", self._model, error)
        self.problem = str(error) or type(error).__name__
        self.settled.set()
        await asyncio.sleep(RETRY_SECONDS)
