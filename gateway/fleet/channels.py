"""One gRPC channel per worker address: made when asked for, closed when no worker has it."""

from asyncio import Task, create_task, gather

import grpc.aio
from grpc import StatusCode
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub

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

PROBE_SECONDS = 1.0
NO_ANSWER = {StatusCode.DEADLINE_EXCEEDED, StatusCode.UNAVAILABLE}


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
            self._track(create_task(self._open.pop(address).close(CLOSING_GRACE)))

    def end_if_dead(self, address: str) -> None:
        """The worker there went silent: end its calls at once, unless it still answers.

        A process that hangs, or a machine that is gone, breaks no connection, so its calls would
        wait for long. A worker that only cannot report finishes its streams.
        """
        channel = self._open.pop(address, None)
        if channel is not None:
            self._track(create_task(_close_silent(channel)))

    async def close(self) -> None:
        """Close all, and end the calls that still run."""
        closing = [*self._closing]
        for task in closing:
            task.cancel()
        await gather(*closing, return_exceptions=True)
        await gather(*(channel.close() for channel in self._open.values()))
        self._open.clear()

    def _track(self, closing: Task[None]) -> None:
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


async def _close_silent(channel: grpc.aio.Channel) -> None:
    grace: float | None = CLOSING_GRACE
    try:
        await HealthStub(channel).Check(HealthCheckRequest(), timeout=PROBE_SECONDS)
    except grpc.aio.AioRpcError as error:
        if error.code() in NO_ANSWER:
            grace = None
    await channel.close(grace)
