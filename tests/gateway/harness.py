"""A whole gateway in this process, a client of it, and workers that it trusts."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

import grpc.aio
import pytest
from grpc_health.v1.health_pb2_grpc import HealthStub
from radixgate.prefix import pack_tokens
from radixgate.v1.gateway_pb2 import (
    TRUST_LIVE,
    ListModelsRequest,
    ListWorkersRequest,
    WorkerInfo,
)
from radixgate.v1.gateway_pb2_grpc import GatewayStub
from radixgate.v1.generate_pb2 import GenerateRequest, GenerateResponse

from gateway.config import GatewayConfig
from gateway.main import gateway
from tests.gateway.doubles import ScriptedWorker
from tests.summary.valkey import Valkey

PROMPT = pack_tokens([5 + at % 900 for at in range(640)])
REQUEST = GenerateRequest(packed=PROMPT)


class Client(NamedTuple):
    """Stubs for one gateway."""

    address: str
    gateway: GatewayStub
    health: HealthStub

    async def workers(self) -> list[WorkerInfo]:
        return list((await self.gateway.ListWorkers(ListWorkersRequest())).workers)

    async def generate(self, request: GenerateRequest = REQUEST) -> list[GenerateResponse]:
        return [response async for response in self.gateway.Generate(request)]

    async def failure(self, request: GenerateRequest = REQUEST) -> grpc.aio.AioRpcError:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.generate(request)
        return caught.value


@asynccontextmanager
async def serving(valkey: Valkey, **changes: Any) -> AsyncIterator[Client]:
    """A gateway, and a client of it; `changes` of its configuration."""
    config = GatewayConfig(port=0, redis_url=valkey.url, lease_ms=1_000, **changes)
    async with gateway(config) as running, grpc.aio.insecure_channel(running.address) as channel:
        yield Client(running.address, GatewayStub(channel), HealthStub(channel))


@asynccontextmanager
async def working(client: Client, *workers: ScriptedWorker) -> AsyncIterator[None]:
    """Workers that report to the gateway and are trusted by it."""
    async with AsyncExitStack() as stack:
        for worker in workers:
            await stack.enter_async_context(worker.running(client.address))
        await until(lambda: live(client, *workers))
        yield


async def live(client: Client, *workers: ScriptedWorker) -> bool:
    """Whether they, and maybe others, are trusted, and the gateway can tokenize for them."""
    models = {info.model for info in (await client.gateway.ListModels(ListModelsRequest())).models}
    if not models >= {worker.card.model for worker in workers}:
        return False
    lives = {info.address for info in await client.workers() if info.trust == TRUST_LIVE}
    return lives >= {worker.address for worker in workers}


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 (what is awaited is in other processes)
            await asyncio.sleep(0.01)


def events(responses: list[GenerateResponse]) -> list[str | None]:
    return [response.WhichOneof("event") for response in responses]
