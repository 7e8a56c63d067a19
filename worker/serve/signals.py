"""SIGTERM and SIGINT: the first asks to stop, the second to do so at once."""

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any


class StopSignals:
    """Listens from when it is made, in the running loop."""

    def __init__(self) -> None:
        self._first = asyncio.Event()
        self._second = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._received)

    async def wait(self) -> None:
        """Return at the first signal."""
        await self._first.wait()

    async def unless_repeated(self, stopping: Coroutine[Any, Any, None]) -> None:
        """Run `stopping` to its end, or drop it at the second signal."""
        task = asyncio.create_task(stopping)
        repeated = asyncio.create_task(self._second.wait())
        await asyncio.wait({task, repeated}, return_when=asyncio.FIRST_COMPLETED)
        repeated.cancel()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    def _received(self) -> None:
        (self._second if self._first.is_set() else self._first).set()
