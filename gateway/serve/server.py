"""A gRPC server from its first request to its last: ports, health, reflection, drain."""

import asyncio
from collections.abc import Iterable
from typing import Final

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from radixgate.serving import SERVER_OPTIONS

SERVING: Final = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
FOREVER_SECONDS: Final = 1e6


class PortTakenError(Exception):
    """The address cannot be listened on; the message says which."""


class Server:
    """A server with health and reflection.

    Args: `services`, full names of all services that are going to be added to `grpc`; `share_port`,
    whether other processes may listen on its port as well.
    """

    def __init__(self, services: Iterable[str], *, share_port: bool = False) -> None:
        options = dict(SERVER_OPTIONS) | {"grpc.so_reuseport": int(share_port)}
        self.grpc = grpc.aio.server(options=tuple(options.items()))
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

    def take_no_more(self) -> None:
        """Listen no more, and tell connected clients so; calls under way go on until `stop`."""
        self._closing = asyncio.create_task(self.grpc.stop(FOREVER_SECONDS))

    async def stop(self, grace: float) -> None:
        """Take no more calls, and end those that run after `grace` seconds. Idempotent."""
        await self.grpc.stop(grace)
