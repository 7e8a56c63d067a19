"""A gRPC server from its first request to its last: ports, health, reflection, signals, drain."""

import asyncio
import logging
import signal
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from radixgate.limits import MAX_MESSAGE_BYTES

OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # NOTE: without it a second server takes half of the calls of the first, silently.
    ("grpc.so_reuseport", 0),
    # Clients and workers may ping each ten seconds to notice that a machine is gone.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)

SERVING: Final = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING

logger = logging.getLogger(__name__)


class PortTakenError(Exception):
    """The address cannot be listened on; the message says which."""


class Server:
    """A server with health and reflection.

    Args: `services`, full names of all services that are going to be added to `grpc`.
    """

    def __init__(self, services: Iterable[str]) -> None:
        self.grpc = grpc.aio.server(options=OPTIONS)
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.grpc)
        self._services = [*services]
        names = [*self._services, health.SERVICE_NAME, reflection.SERVICE_NAME]
        reflection.enable_server_reflection(names, self.grpc)

    async def start(self, host: str, port: int) -> int:
        """Listen and serve; the port, a free one if `port` is 0.

        Raises:
            PortTakenError: the address cannot be listened on.
        """
        try:
            bound = self.grpc.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise PortTakenError(
                f"cannot listen on {host}:{port}: is another program using that port?"
            ) from error
        for service in self._services:
            await self.report(service, healthy=True)
        await self.grpc.start()
        return bound

    async def report(self, service: str, *, healthy: bool) -> None:
        """Set what health says of `service`."""
        await self._health.set(service, SERVING if healthy else NOT_SERVING)

    async def announce_end(self, notice: float) -> None:
        """Say NOT_SERVING, and serve on for `notice` seconds, in which that gets around."""
        await self._health.enter_graceful_shutdown()
        await asyncio.sleep(notice)

    async def stop(self, grace: float) -> None:
        """Take no more calls, and end those that run after `grace` seconds. Idempotent."""
        await self.grpc.stop(grace)


class StopSignals:
    """SIGTERM and SIGINT: the first asks to stop, the second to do so at once."""

    def __init__(self) -> None:
        self._first, self._second = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._received)

    async def wait(self) -> None:
        """Return at the first signal."""
        await self._first.wait()

    async def unless_repeated(self, stopping: Coroutine[Any, Any, None]) -> None:
        """Run `stopping` to its end, or to the second signal."""
        task = asyncio.create_task(stopping)
        impatience = asyncio.create_task(self._second.wait())
        await asyncio.wait({task, impatience}, return_when=asyncio.FIRST_COMPLETED)
        impatience.cancel()
        if not task.done():
            logger.warning("a second signal: stopping at once")
            task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    def _received(self) -> None:
        (self._second if self._first.is_set() else self._first).set()
