"""Redis stops being of use in every way it can: requests are served, and no worker is lost."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from redis.asyncio import Redis

from tests.gateway.doubles import ScriptedWorker, make_card
from tests.gateway.harness import PROMPT, Client, events, live, serving, until, working
from tests.summary.valkey import Valkey

pytestmark = pytest.mark.slow

LEASES = 3


@asynccontextmanager
async def killed(valkey: Valkey, _: Any) -> AsyncIterator[None]:
    valkey.kill()
    yield
    valkey.start()


@asynccontextmanager
async def hung(_: Valkey, redis: Any) -> AsyncIterator[None]:
    pid = (await redis.info("server"))["process_id"]
    os.kill(pid, signal.SIGSTOP)
    yield
    os.kill(pid, signal.SIGCONT)


@asynccontextmanager
async def full(_: Valkey, redis: Any) -> AsyncIterator[None]:
    await redis.config_set("maxmemory", 1)
    yield
    await redis.config_set("maxmemory", 0)


@asynccontextmanager
async def read_only(_: Valkey, redis: Any) -> AsyncIterator[None]:
    await redis.replicaof("127.0.0.1", 1)
    yield
    await redis.replicaof("NO", "ONE")


async def redis_is(client: Client, status: int) -> bool:
    check = HealthCheckRequest(service="redis")
    return (await client.health.Check(check)).status == status


@pytest.mark.parametrize("away", [killed, hung, full, read_only])
async def test_workers_of_every_gateway_stay_known_to_all(
    valkey: Valkey, away: Callable[[Valkey, Any], Any]
) -> None:
    a, b = ScriptedWorker("a", make_card()), ScriptedWorker("b", make_card())
    async with (
        serving(valkey) as one,
        serving(valkey) as two,
        working(one, a),
        working(two, b),
        Redis.from_url(valkey.url) as redis,
    ):
        gateways = (one, two)

        async def all_live() -> bool:
            return all([await live(client, a, b) for client in gateways])

        async def all_hold() -> bool:
            summaries = [
                {info.worker: info.summary.count for info in await client.workers()}
                for client in gateways
            ]
            return summaries == [{"a": 10, "b": 0}] * 2

        def all_say(status: int) -> Callable[[], Awaitable[bool]]:
            async def say() -> bool:
                return all([await redis_is(client, status) for client in gateways])

            return say

        await until(all_live)
        a.store(PROMPT)
        await until(all_hold)
        async with away(valkey, redis):
            await until(all_say(HealthCheckResponse.NOT_SERVING))
            loop = asyncio.get_running_loop()
            end = loop.time() + LEASES
            while loop.time() < end:
                for client in gateways:
                    responses = await client.generate()
                    assert events(responses)[-1] == "finished"
                    assert responses[0].started.worker == "a", "what is held was forgotten"
                    assert len(await client.workers()) == 2
        await until(all_say(HealthCheckResponse.SERVING))
        await until(all_live)
        await until(all_hold)
