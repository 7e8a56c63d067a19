"""A gateway that leaves: what runs and waits is finished, and the other gateways learn at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc.aio
import pytest
from grpc import StatusCode
from grpc_health.v1.health_pb2_grpc import HealthStub
from radixgate.v1.gateway_pb2_grpc import GatewayStub

from gateway.config import GatewayConfig
from gateway.main import gateway
from gateway.running import Gateway
from tests.gateway.doubles import ScriptedWorker, make_card
from tests.gateway.harness import PROMPT, Client, events, live, serving, until, working
from tests.gateway.test_sharing import expected, holding
from tests.summary.valkey import Valkey

pytestmark = pytest.mark.slow

WHOLE = ["started", "tokens", "tokens", "finished"]


class Busy(ScriptedWorker):
    """One that reports what it runs, so that a report gives nobody's place away."""

    async def Generate(self, request, context):  # type: ignore[no-untyped-def]
        self.load.running += 1
        try:
            async for response in super().Generate(request, context):
                yield response
        finally:
            self.load.running -= 1


@asynccontextmanager
async def leaving(valkey: Valkey) -> AsyncIterator[tuple[Gateway, Client]]:
    """A gateway that can be stopped, and a client of it."""
    config = GatewayConfig(port=0, redis_url=valkey.url)
    async with gateway(config) as running, grpc.aio.insecure_channel(running.address) as channel:
        yield running, Client(running.address, GatewayStub(channel), HealthStub(channel))


async def test_what_runs_and_what_waits_is_finished_and_reports_go_on_meanwhile(
    valkey: Valkey,
) -> None:
    go_on = asyncio.Event()
    a = Busy("a", make_card(), holding(go_on))
    a.load.max_running = 1
    async with leaving(valkey) as (running, one), serving(valkey) as two, working(one, a):
        await until(lambda: live(two, a))
        # One more than it can run is sent, and one waits here.
        requests = [asyncio.create_task(one.generate()) for _ in range(2)]
        await until(lambda: _runs(one, 2))
        requests.append(asyncio.create_task(one.generate()))
        await until(lambda: _true(len(running.calls) == 3))
        stopping = asyncio.create_task(running.stop(notice=0, grace=600))
        await until(lambda: refuses(one))
        a.store(PROMPT)
        await until(lambda: _expects(two, 640))
        assert not any(request.done() for request in requests)
        assert len(a.requests) == 2
        go_on.set()
        assert [events(await request) for request in requests] == [WHOLE] * 3
        await stopping
        await until(lambda: _true(a.sync_error is not None))
        assert a.sync_error
        # NOTE: gRPC makes it INTERNAL when a report is being written just then.
        assert a.sync_error.code() in {StatusCode.UNAVAILABLE, StatusCode.INTERNAL}


async def test_what_outlasts_the_grace_is_told_to_ask_another_and_counts_nowhere(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.route.router.PEER_SILENCE", 600)
    a = ScriptedWorker("a", make_card(), holding(asyncio.Event()))
    async with serving(valkey) as two:
        async with leaving(valkey) as (running, one), working(two, a):
            await until(lambda: live(one, a))
            request = asyncio.create_task(one.failure())
            await until(lambda: _expects(two, 640))
            await running.stop(notice=0, grace=0)
            failure = await request
            assert failure.code() is StatusCode.UNAVAILABLE
            assert failure.details() == (
                "this gateway has left, and had no time to finish; ask another"
            )
            await asyncio.wait_for(a.cancelled.wait(), 20)
        async with working(two, a):
            await until(lambda: _expects(two, 0))


async def refuses(client: Client) -> bool:
    """Whether a call fails as one that clients try elsewhere."""
    try:
        await client.workers()
    except grpc.aio.AioRpcError as error:
        return error.code() is StatusCode.UNAVAILABLE
    return False


async def _expects(client: Client, tokens: int) -> bool:
    return await expected(client, "a") == tokens


async def _runs(client: Client, requests: int) -> bool:
    (worker,) = await client.workers()
    return worker.load.running == requests


async def _true(value: bool) -> bool:
    return value
