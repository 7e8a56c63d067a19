"""One gRPC channel per worker address: made when asked for, closed when no worker has it."""

from asyncio import Task, create_task, gather

import grpc.aio

OPTIONS = (
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    ("grpc.max_send_message_length", 64 * 1024 * 1024),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # NOTE: a restarted worker is back within seconds; gRPC would wait up to two minutes for it.
    ("grpc.max_reconnect_backoff_ms", 1_000),
)
CLOSING_GRACE = 60.0
"""Seconds that calls may go on after their worker left: a draining worker finishes its streams."""


class Channels:
    """Ask for the channel at each call: one that was kept may be closing."""

    def __init__(self) -> None:
        self._open: dict[str, grpc.aio.Channel] = {}
        self._closing: set[Task[None]] = set()

    def get(self, address: str) -> grpc.aio.Channel:
        """The channel to `address`; connects by itself, again and again."""
        channel = self._open.get(address)
        if channel is None:
            channel = grpc.aio.insecure_channel(address, options=OPTIONS)
            self._open[address] = channel
        return channel

    def keep(self, addresses: set[str]) -> None:
        """Close all channels to other addresses, each as soon as its calls have ended."""
        for address in self._open.keys() - addresses:
            closing = create_task(self._open.pop(address).close(CLOSING_GRACE))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all, and end the calls that still run."""
        closing = [*self._closing]
        for task in closing:
            task.cancel()
        await gather(*closing, return_exceptions=True)
        await gather(*(channel.close() for channel in self._open.values()))
        self._open.clear()
