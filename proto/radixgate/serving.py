"""What the servers of gateway and worker share: gRPC options, and how signals stop them."""

import asyncio
import logging
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

from radixgate.limits import MAX_MESSAGE_BYTES

SERVER_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # NOTE: without it a second server takes half of the calls of the first, silently.
    ("grpc.so_reuseport", 0),
    # Both ends of a connection may ping each ten seconds to notice that a machine is gone.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)

logger = logging.getLogger(__name__)


class StopSignals:
    """SIGTERM and SIGINT, from when it is made in the running loop.

    The first asks to stop, the second to do so at once.
    """

    def __init__(self) -> None:
        self._first, self._second = asyncio.Event(), asyncio.Event()
        self._last = signal.SIGTERM
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._received, number)

    async def wait(self) -> None:
        """Return at the first signal."""
        await self._first.wait()

    async def unless_repeated(self, stopping: Coroutine[Any, Any, None]) -> None:
        """Run `stopping` to its end, or drop it at the second signal.

        Raises:
            SystemExit: 128 + n, as shells have it: signal n was the second.
        """
        task = asyncio.create_task(stopping)
        repeated = asyncio.create_task(self._second.wait())
        await asyncio.wait({task, repeated}, return_when=asyncio.FIRST_COMPLETED)
        repeated.cancel()
        if task.done():
            return await task
        logger.warning("a second signal: stopping at once")
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        raise SystemExit(128 + self._last)

    def _received(self, number: signal.Signals) -> None:
        self._last = number
        (self._second if self._first.is_set() else self._first).set()
