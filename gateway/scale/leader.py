"""One of all gateways leads: a lock in Redis that its holder renews.

Who cannot renew it, whatever the cause, stops leading at that moment, long before the lock expires
and another can take it. While Redis is away nobody leads. A Redis that fails over may have
forgotten the lock, and then two lead for as long as it lasts: do only what does no harm twice.
"""

import asyncio
import logging
import math
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

LOCK_SECONDS: Final = 15.0
RENEWALS: Final = 3
"""In the time that a lock lasts."""

TAKE_OR_RENEW: Final = """
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
    return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
    return 1
end
return 0
"""
GIVE_UP: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('DEL', KEYS[1])
end
return 0
"""


def leader_key(namespace: str, selector: str) -> str:
    """The lock of the gateways that lead the same pods."""
    return f"radixgate:leader:{namespace}/{selector}"


class Leader:
    """Args:
    redis: a client that answers or fails within a second or so.
    key: of the lock.
    clock: monotonic seconds.
    seconds: that the lock lasts without being renewed.
    """

    def __init__(
        self, redis: Redis, key: str, clock: Callable[[], float], seconds: float = LOCK_SECONDS
    ) -> None:
        self._key = key
        self._clock = clock
        self._seconds = seconds
        self._token = secrets.token_hex(16)
        self._take_or_renew = redis.register_script(TAKE_OR_RENEW)
        self._give_up = redis.register_script(GIVE_UP)
        self._until = -math.inf

    @property
    def leads(self) -> bool:
        """Whether this gateway leads now, even if it has just been stopped for a while."""
        return self._clock() < self._until

    async def run(self) -> None:
        """Lead when nobody else does, until cancelled."""
        while True:
            await self._renew()
            await asyncio.sleep(self._seconds / RENEWALS)

    async def close(self) -> None:
        """Let another lead at once, when `run` has been cancelled."""
        self._until = -math.inf
        with suppress(RedisError):
            await self._give_up(keys=[self._key], args=[self._token])

    async def _renew(self) -> None:
        led, asked_at, problem = self.leads, self._clock(), "another does"
        try:
            held = await self._take_or_renew(
                keys=[self._key], args=[self._token, round(self._seconds * 1_000)]
            )
        except RedisError as error:
            held, problem = 0, str(error) or type(error).__name__
        # NOTE: counted from before the question, so it ends here before it ends in Redis.
        self._until = asked_at + self._seconds if held else -math.inf
        if held and not led:
            logger.info("this gateway leads (%s)", self._key)
        elif led and not held:
            logger.warning("this gateway leads no more (%s): %s", self._key, problem)
