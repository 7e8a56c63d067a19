"""How a worker leaves: it tells the gateways, takes on until they know, and finishes what it has.

So no request is refused that a gateway could have sent elsewhere. What is on its way when the last
gateway learns of it has `SETTLE_SECONDS` to arrive; what comes later is refused, and sent elsewhere
by its gateway.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from grpc import StatusCode
from radixgate.calls import Calls
from radixgate.refused import RefusedError

_log = logging.getLogger(__name__)

TELL_SECONDS: Final = 1.0
SETTLE_SECONDS: Final = 0.2


class Drain:
    """Args: `worker`, its id; `tell` returns when the gateways know that it drains.

    Attributes:
        begun: whether the gateways are to be told.
        refuses: set once requests are not taken any more.
    """

    def __init__(self, worker: str, tell: Callable[[], Awaitable[None]]) -> None:
        self.begun = False
        self.refuses = asyncio.Event()
        self._worker = worker
        self._tell = tell
        self._calls = Calls(f"worker {worker}")

    @contextmanager
    def request(self) -> Iterator[None]:
        """Serve one inside.

        Raises:
            RefusedError: UNAVAILABLE, no more are taken, or there was no time to finish this one.
        """
        if self.refuses.is_set():
            raise RefusedError(
                StatusCode.UNAVAILABLE, f"worker {self._worker} is draining; ask another"
            )
        with self.call():
            yield

    @contextmanager
    def call(self) -> Iterator[None]:
        """Serve inside what is never refused for draining, which waits for it all the same.

        Raises:
            RefusedError: UNAVAILABLE, there was no time to finish it.
        """
        with self._calls.call():
            yield

    async def run(self, grace: float) -> int:
        """Drain for `grace` seconds at most; how many requests are left then."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        self.begun = True
        await self._announce(grace)
        self.refuses.set()
        unfinished = await self._calls.finish(deadline - loop.time())
        if unfinished:
            _log.warning("%d requests are unfinished after the grace of %g s", unfinished, grace)
        return unfinished

    async def end(self) -> None:
        """End what is left: its gateway goes on with it elsewhere."""
        await self._calls.end()

    async def _announce(self, grace: float) -> None:
        try:
            async with asyncio.timeout(min(TELL_SECONDS, grace)):
                await self._tell()
        except TimeoutError:
            _log.warning("no gateway has confirmed that this worker drains")
        else:
            await asyncio.sleep(min(SETTLE_SECONDS, grace))
