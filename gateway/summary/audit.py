"""Anti-entropy: now and then, the whole summary of a worker is counted again, here and in Redis.

Every report already compares digests, but a digest is kept current by adding and removing: it does
not see a hash that went missing, or came, without a report. So the hashes themselves are counted,
in small steps that hold up neither requests nor Redis. What differs is logged with both sides and
marked as doubtful; the worker's next report then finds it out of sync, and the usual repair
follows: a mirror is loaded from Redis, and a summary in Redis is replaced by a snapshot.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Final

from radixgate.digest import SetDigest
from radixgate.prefix import PrefixHash
from redis.exceptions import RedisError

from gateway.summary.mirror import Mirror, Summary
from gateway.summary.reader import PoolReader

logger = logging.getLogger(__name__)

AUDIT_SECONDS = 5.0
"""From one audit in a pool to the next, on average."""

STEP_HASHES: Final = 4_096
STEP_SECONDS: Final = 0.005
SUSPECTS: Final = 500
LOOKS: Final = 3
LOOK_SECONDS = 0.2
"""A suspect is looked at so often, so far apart: by then what was under way has arrived."""

SHOWN: Final = 4

Doubt = Callable[[Summary, str], Awaitable[None]]
"""Marks a summary in Redis as doubtful, for the reason given."""


class Auditor:
    """Of one pool.

    Args:
        model: names the pool.
        mirror: of the pool.
        reader: of the pool in Redis.
        doubt: called when a summary in Redis is wrong.

    Attributes:
        audits: how many summaries were counted again, here and in Redis, to the end.
    """

    def __init__(self, model: str, mirror: Mirror, reader: PoolReader, doubt: Doubt) -> None:
        self._model = model
        self._mirror = mirror
        self._reader = reader
        self._doubt = doubt
        self.audits = 0

    async def run(self) -> None:
        """Audit one worker after the other, chosen at random, until cancelled."""
        while True:
            # NOTE: at random, so that gateways do not all count the same worker at the same time.
            await asyncio.sleep(AUDIT_SECONDS * random.uniform(0.5, 1.5))
            summaries = list(self._mirror.summaries())
            if summaries:
                await self.audit(random.choice(summaries))

    async def audit(self, summary: Summary) -> None:
        """Count one summary again: here, and, if that is right and Redis can be asked, there."""
        if not await self._audit_mirror(summary):
            return
        try:
            await self._audit_redis(summary)
        except RedisError as error:
            logger.info("pool %s: the audit of Redis was cut short: %s", self._model, error)
        else:
            self.audits += 1

    async def _audit_mirror(self, summary: Summary) -> bool:
        claimed, hashes = summary.digest, iter(list(summary.hashes))
        counted = SetDigest()
        while step := list(islice(hashes, STEP_HASHES)):
            counted = counted.changed(step, [])
            await asyncio.sleep(0)
        if counted == claimed:
            return True
        if self._mirror.get(summary.registration.worker) is summary:
            logger.warning(
                "%s: the mirror has %s by its changes, but %s when counted again",
                self._name(summary),
                claimed,
                counted,
            )
            self._mirror.recounted(summary, claimed, counted)
        return False

    async def _audit_redis(self, summary: Summary) -> None:
        try:
            suspects = await self._suspects(summary)
        except ValueError as error:
            logger.warning("%s: Redis holds what is no hash: %s", self._name(summary), error)
            await self._doubt(summary, f"Redis holds what is no hash: {error}")
            return
        for _ in range(LOOKS):
            if not suspects:
                return
            await asyncio.sleep(LOOK_SECONDS)
            suspects = await self._look_again(summary, suspects)
        if suspects and self._mirror.get(summary.registration.worker) is summary:
            extra = [name for name in suspects if name not in summary.hashes]
            missing = [name for name in suspects if name in summary.hashes]
            why = (
                f"Redis holds {_some(extra)} that the worker does not report, and lacks"
                f" {_some(missing)} that it does; {summary.digest} by its reports"
            )
            logger.warning("%s: %s", self._name(summary), why)
            await self._doubt(summary, why)

    async def _suspects(self, summary: Summary) -> list[PrefixHash]:
        """Hashes that are not both here and in Redis, or that changed meanwhile."""
        registration = summary.registration
        unseen, extra = set(summary.hashes), set[PrefixHash]()
        async for step in self._reader.scan(registration.worker, registration.epoch):
            unseen.difference_update(step)
            extra.update(name for name in step if name not in summary.hashes)
            await asyncio.sleep(STEP_SECONDS)
        return [*islice(extra, SUSPECTS), *islice(unseen, SUSPECTS)]

    async def _look_again(
        self, summary: Summary, suspects: Sequence[PrefixHash]
    ) -> list[PrefixHash]:
        registration = summary.registration
        held = await self._reader.held(registration.worker, registration.epoch, suspects)
        return [
            name
            for name, is_held in zip(suspects, held, strict=True)
            if is_held != (name in summary.hashes)
        ]

    def _name(self, summary: Summary) -> str:
        registration = summary.registration
        return f"pool {self._model}: worker {registration.worker} epoch {registration.epoch}"


def _some(hashes: Sequence[PrefixHash]) -> str:
    shown = " ".join(f"{name:016x}" for name in hashes[:SHOWN])
    return f"{len(hashes)} hashes ({shown}{', ...' if len(hashes) > SHOWN else ''})"
