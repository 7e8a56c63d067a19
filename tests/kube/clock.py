"""The time of the control loops that wait for minutes; it may run faster than the wall's."""

import asyncio
import time


class Clock:
    """Seconds since the epoch, `speed` of them a second from now on.

    Autoscaling alone lives by it: processes, probes and graces do not run faster.
    """

    def __init__(self, speed: float) -> None:
        self._base, self._since, self._speed = time.time(), time.monotonic(), speed

    def time(self) -> float:
        """Now."""
        return self._base + (time.monotonic() - self._since) * self._speed

    async def sleep(self, seconds: float) -> None:
        """Sleep for so many seconds of this clock."""
        await asyncio.sleep(seconds / self._speed)
