"""One model pool in this gateway, and the set of them.

A pool ties together its mirror, its store in Redis, the tail between them and the audit of both. It
decides where a report goes: to Redis, from where it reaches every mirror, or, while Redis is away,
to this mirror. Its outbox and the announcements it hears share reservations between gateways.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, Protocol, cast

from radixgate.v1.gateway_pb2 import FinishRequest
from radixgate.v1.peer_pb2 import Announcement, Reserved
from redis.exceptions import RedisError

from gateway.summary.audit import Auditor
from gateway.summary.events import Event, EventObserver, Registered, WorkerRecord
from gateway.summary.local import LocalSink
from gateway.summary.mirror import Mirror, MirrorListener, Summary
from gateway.summary.outbox import Outbox, OutboxOf
from gateway.summary.publisher import Publisher
from gateway.summary.reader import PoolReader
from gateway.summary.redis import Patience, connect, connect_to_follow
from gateway.summary.sink import Outcome, StaleEpochError, SummarySink
from gateway.summary.store import POOLS_KEY, SummaryStore
from gateway.summary.tail import Tail

logger = logging.getLogger(__name__)

DISCOVERY_SECONDS = 1.0

MIRROR: Final = "mirror"
SUMMARY: Final = "summary"
"""Places where a mismatch may be."""


class PoolListener(MirrorListener, Protocol):
    """Hears of a pool's summaries, and of what other gateways have reserved there."""

    def heard(self, announcement: Announcement, now: float) -> None:
        """Another gateway's, at `now`, in monotonic seconds; only of workers as they are now."""


FinishListener = Callable[[FinishRequest], None]
"""Takes how a request ended. It may be told twice, and of requests of any gateway."""


class Pool:
    """All workers of `model`.

    Args:
        model: names the pool.
        store: its summaries in Redis.
        reader: of the same, with a connection that may block.
        lease: in seconds.
        block: seconds that one read of the stream may wait for news.
        listener: of the mirror, and of the other gateways.
        outbox: what this gateway has to tell the others.
        finished: told what clients of other gateways said of how a request ended.
        observers: told of each event after the mirror has taken it.

    Attributes:
        mismatches: how often the mirror was found to be wrong, or a report did not agree with the
            summary, by place.
        heard: how many reservations other gateways have announced.
    """

    def __init__(
        self,
        *,
        model: str,
        store: SummaryStore,
        reader: PoolReader,
        lease: float,
        block: float,
        listener: PoolListener,
        outbox: Outbox,
        finished: FinishListener,
        observers: Sequence[EventObserver],
    ) -> None:
        self.model = model
        self.mirror = Mirror(listener)
        self.tail = Tail(reader, model, self, block)
        self.auditor = Auditor(model, self.mirror, reader, self._doubt)
        self.outbox = outbox
        self.mismatches = Counter({MIRROR: 0, SUMMARY: 0})
        self.heard = 0
        self._listener = listener
        self._finished = finished
        self._observers = observers
        self._store = store
        self._local = LocalSink(self.mirror, self.take)
        self._lease = lease
        self._write_problem = ""
        self._write_failed_at = 0.0

    @property
    def problem(self) -> str:
        """Why Redis cannot be used now; empty while it can.

        A Redis that can be read but takes no reports, being full or a replica, is no use either:
        the news of other gateways' workers does not arrive. Workers report several times in a
        lease, so what one report met is no news any more after a lease without another.
        """
        if self.tail.problem:
            return self.tail.problem
        recent = time.monotonic() - self._write_failed_at < self._lease
        return self._write_problem if recent else ""

    async def write(self, report: Callable[[SummarySink], Awaitable[Outcome]]) -> Outcome:
        """Give a report to Redis, or to the mirror alone when Redis does not take it."""
        await self.tail.settled.wait()
        if not self.tail.problem:
            try:
                outcome = await report(self._store)
            except RedisError as error:
                if not self._write_problem:
                    logger.warning("pool %s: Redis does not take reports: %s", self.model, error)
                self._write_problem = str(error) or type(error).__name__
                self._write_failed_at = time.monotonic()
            else:
                self._write_problem = ""
                return outcome
        return await report(self._local)

    def take(self, event: Event) -> bool:
        """Take an event: the mirror first. False when the mirror cannot follow."""
        follows = self.mirror.apply(event)
        if not follows and (contradiction := self.mirror.contradiction(event)):
            logger.warning("pool %s: the mirror is wrong: %s", self.model, contradiction)
            self.mismatches[MIRROR] += 1
        self._tell(event)
        return follows

    async def restore(self, record: WorkerRecord) -> None:
        """Take all that Redis holds of a worker, and say so when that contradicts itself."""
        agrees = self.mirror.load(record)
        registration = record.registration
        self._tell(Registered(registration, record.seq, record.load, record.synced))
        summary = self.mirror.get(registration.worker)
        if not agrees and summary is not None:
            held = len(record.hashes)
            why = (
                f"Redis holds {held} hashes with {summary.digest}, its record says {record.digest}"
            )
            logger.warning("pool %s: worker %s: %s", self.model, registration.worker, why)
            await self._doubt(summary, why)

    def hear(self, announcement: Announcement) -> None:
        """Take what a gateway has announced, unless it was this one."""
        if announcement.gateway == self.outbox.gateway:
            return
        current = [entry for entry in announcement.reserved if self._is_current(entry)]
        if len(current) < len(announcement.reserved):
            del announcement.reserved[:]
            announcement.reserved.extend(current)
        self.heard += len(current)
        self._listener.heard(announcement, time.monotonic())
        for request in announcement.finished:
            self._finished(request)

    def _is_current(self, reserved: Reserved) -> bool:
        summary = self.mirror.get(reserved.worker)
        return summary is not None and summary.epoch == reserved.epoch

    async def doubt(self, worker: str, epoch: int, why: str) -> None:
        """The summary of a life of `worker` may be wrong: at its next Load a snapshot is asked for.

        Raises:
            RedisError: Redis cannot be told now.
        """
        with suppress(StaleEpochError):
            await self._store.doubt(worker, epoch, why)

    async def _doubt(self, summary: Summary, why: str) -> None:
        await self.doubt(summary.registration.worker, summary.epoch, why)

    def _tell(self, event: Event) -> None:
        for observer in self._observers:
            try:
                observer.observe(self.model, event)
            except Exception:
                # NOTE: a fault of ours, which is none of Redis or the worker; others hear of it.
                logger.exception(
                    "pool %s: %s failed to take %s of worker %s",
                    self.model,
                    type(observer).__name__,
                    type(event).__name__,
                    event.worker,
                )


class Pools:
    """Every pool that has, or had, workers: known from Redis or from a worker's own Hello.

    Args:
        url: of Redis.
        lease_ms: a worker that says nothing for so long is dropped.
        listener_for: makes the listener of a new pool, given its model.
        outbox_of: the outbox of a pool, given its model.
        finished: as of a `Pool`.
        observers: told of each event of every pool.

    Raises:
        RedisSetupError: `url` cannot be a Redis URL.
    """

    def __init__(
        self,
        url: str,
        lease_ms: int,
        *,
        listener_for: Callable[[str], PoolListener],
        outbox_of: OutboxOf,
        finished: FinishListener,
        observers: Sequence[EventObserver],
    ) -> None:
        self.lease_ms = lease_ms
        self._patience = Patience.within(lease_ms / 1_000)
        self._redis = connect(url, self._patience)
        self._follow = connect_to_follow(url, self._patience)
        self._listener_for = listener_for
        self._outbox_of = outbox_of
        self._finished = finished
        self._observers = observers
        self._pools: dict[str, Pool] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._publishers: list[Publisher] = []
        self._discovery_problem = ""
        self._discovered = False

    def __iter__(self) -> Iterator[Pool]:
        return iter(list(self._pools.values()))

    def find(self, model: str) -> Pool | None:
        """The pool of `model`, if it has ever had a worker."""
        return self._pools.get(model)

    def get(self, model: str) -> Pool:
        """The pool of `model`; one that is new begins to follow Redis."""
        pool = self._pools.get(model)
        if pool is None:
            pool = Pool(
                model=model,
                store=SummaryStore(self._redis, model, self.lease_ms),
                reader=PoolReader(self._follow, model),
                lease=self.lease_ms / 1_000,
                block=self._patience.block,
                listener=self._listener_for(model),
                outbox=self._outbox_of(model),
                finished=self._finished,
                observers=self._observers,
            )
            self._pools[model] = pool
            publisher = Publisher(self._redis, model, pool.outbox)
            self._publishers.append(publisher)
            for part in (pool.tail, pool.auditor, publisher):
                name = f"{type(part).__name__} of {model}"
                self._tasks.append(asyncio.create_task(part.run(), name=name))
        return pool

    def knows(self, model: str) -> bool:
        """Whether Redis has ever told this gateway which workers of `model` there are."""
        pool = self.find(model)
        return self._discovered if pool is None else pool.tail.complete

    @property
    def problem(self) -> str:
        """Why Redis cannot be used now; empty while it can."""
        problems = (pool.problem for pool in self)
        return next((problem for problem in problems if problem), self._discovery_problem)

    async def run(self) -> None:
        """Find the pools that other gateways have made, until cancelled."""
        while True:
            try:
                for model in cast(set[bytes], await self._redis.smembers(POOLS_KEY)):
                    self.get(model.decode())
                self._discovery_problem = ""
                self._discovered = True
            except RedisError as error:
                self._discovery_problem = str(error) or type(error).__name__
            except Exception as error:
                # NOTE: whatever it is, the pools that are known here go on.
                logger.exception("cannot find the pools of other gateways")
                self._discovery_problem = str(error) or type(error).__name__
            await asyncio.sleep(DISCOVERY_SECONDS)

    async def close(self) -> None:
        """Stop following, tell the others what has ended here, and close the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(publisher.close() for publisher in self._publishers))
        await self._redis.aclose()
        await self._follow.aclose()
