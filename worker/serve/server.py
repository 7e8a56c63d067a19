"""The gRPC server of a worker: the service, health and reflection on one port."""

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from radixgate.serving import SERVER_OPTIONS
from radixgate.v1 import worker_pb2
from radixgate.v1.worker_pb2_grpc import add_WorkerServicer_to_server

from worker.serve.service import WorkerService

_SERVICE = worker_pb2.DESCRIPTOR.services_by_name["Worker"].full_name


class WorkerServer:
    """Binds its port when made, so that the port is known before anything is served.

    Args:
        host: to bind to.
        port: to bind to; 0 is any free one.

    Attributes:
        port: the one that was bound.

    Raises:
        OSError: the port is taken, or not ours to bind.
    """

    def __init__(self, host: str, port: int) -> None:
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        self._health = health.aio.HealthServicer()
        address = f"{host}:{port}"
        try:
            self.port: int = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: is the port taken? ({error})") from error

    async def start(self, service: WorkerService) -> None:
        """Serve `service` and say so in health."""
        add_WorkerServicer_to_server(service, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (_SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)
        for name in ("", _SERVICE):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        await self._server.start()

    async def not_serving(self) -> None:
        """Say in health, for good, that no request should come here; those there are go on."""
        await self._health.enter_graceful_shutdown()

    async def stop(self, grace_seconds: float) -> None:
        """End; calls that last longer than the grace are cancelled."""
        await self._server.stop(grace_seconds)
