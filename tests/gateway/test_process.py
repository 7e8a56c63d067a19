"""The gateway as a process: signals, reflection, and what dies with it."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc.aio
import psutil
import pytest
from grpc import StatusCode
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub
from radixgate.v1.gateway_pb2 import ListModelsRequest
from radixgate.v1.gateway_pb2_grpc import GatewayStub
from radixgate.v1.generate_pb2 import GenerateRequest, GenerateResponse, Started, Tokens

from tests.gateway.doubles import ScriptedWorker, echo, make_card

pytestmark = pytest.mark.slow

PROGRAM = """
import logging, sys
from gateway.config import GatewayConfig
from gateway.main import run_gateway
logging.basicConfig(level=logging.INFO, format="%(message)s")
run_gateway(GatewayConfig(port=0, grace_seconds=float(sys.argv[1])))
"""


class GatewayProcess:
    """A running gateway with its embedded Redis."""

    def __init__(self, process: Process, address: str) -> None:
        self.process = process
        self.address = address

    async def exit_code(self, seconds: float = 20.0) -> int:
        async with asyncio.timeout(seconds):
            return await self.process.wait()


@asynccontextmanager
async def gateway_process(grace: float = 30.0) -> AsyncIterator[GatewayProcess]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, str(grace), stderr=PIPE
    )
    assert process.stderr is not None
    try:
        line = (await asyncio.wait_for(process.stderr.readline(), 30)).decode()
        assert line.startswith("gateway ready on "), line
        yield GatewayProcess(process, line.split()[-1])
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def scripted(go_on: asyncio.Event):  # type: ignore[no-untyped-def]
    """One token, and the rest when told."""

    async def play(
        request: GenerateRequest, worker: ScriptedWorker
    ) -> AsyncIterator[GenerateResponse]:
        yield GenerateResponse(started=Started(worker=worker.name))
        yield GenerateResponse(tokens=Tokens(ids=[1], text="first"))
        await go_on.wait()
        async for response in echo(request, worker):
            if not response.HasField("started"):
                yield response

    return play


@asynccontextmanager
async def streaming(
    gateway: GatewayProcess, go_on: asyncio.Event
) -> AsyncIterator[AsyncIterator[GenerateResponse]]:
    """A stream that has delivered its first token and waits."""
    worker = ScriptedWorker("w", make_card(), scripted(go_on))
    async with (
        worker.running(gateway.address),
        grpc.aio.insecure_channel(gateway.address) as channel,
    ):
        stub = GatewayStub(channel)
        async with asyncio.timeout(20):
            while not (await stub.ListModels(ListModelsRequest())).models:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            stream = aiter(stub.Generate(GenerateRequest(text="1")))
            await anext(stream)
            await anext(stream)
        yield stream


async def test_sigterm_finishes_what_runs_and_says_not_serving() -> None:
    go_on = asyncio.Event()
    async with gateway_process() as gateway, streaming(gateway, go_on) as stream:
        async with grpc.aio.insecure_channel(gateway.address) as channel:
            watch = aiter(HealthStub(channel).Watch(HealthCheckRequest()))
            assert (await anext(watch)).status == HealthCheckResponse.SERVING
            gateway.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(10):
                assert (await anext(watch)).status == HealthCheckResponse.NOT_SERVING
        go_on.set()
        rest = [response.WhichOneof("event") async for response in stream]
        assert rest == ["tokens", "tokens", "finished"]
        assert await gateway.exit_code() == 0


async def test_what_outlasts_the_grace_ends_with_a_status() -> None:
    async with gateway_process(grace=0.2) as gateway:
        async with streaming(gateway, asyncio.Event()) as stream:
            gateway.process.send_signal(signal.SIGTERM)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await asyncio.wait_for(anext(stream), 20)
            assert caught.value.code() is StatusCode.UNAVAILABLE
            assert "had no time to finish; ask another" in str(caught.value.details())
        assert await gateway.exit_code() == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_stops_at_once(second: signal.Signals) -> None:
    async with (
        gateway_process(grace=600.0) as gateway,
        streaming(gateway, asyncio.Event()) as stream,
    ):
        gateway.process.send_signal(signal.SIGTERM)
        with pytest.raises(TimeoutError):
            await gateway.exit_code(seconds=0.5)
        gateway.process.send_signal(second)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(anext(stream), 20)
        assert caught.value.code() is StatusCode.UNAVAILABLE
        assert await gateway.exit_code() == 128 + second


async def test_the_embedded_redis_dies_with_a_killed_gateway() -> None:
    async with gateway_process() as gateway:
        redis = psutil.Process(gateway.process.pid).children()
        assert redis
        gateway.process.kill()
        _, alive = await asyncio.to_thread(psutil.wait_procs, redis, timeout=10)
        assert not alive


async def test_reflection_lists_every_service() -> None:
    async with (
        gateway_process() as gateway,
        grpc.aio.insecure_channel(gateway.address) as channel,
    ):
        asked = iter([ServerReflectionRequest(list_services="")])
        answers = ServerReflectionStub(channel).ServerReflectionInfo(asked)
        listed = [
            service.name
            async for answer in answers
            for service in answer.list_services_response.service
        ]
    assert {"radixgate.v1.Gateway", "radixgate.v1.KvSync", "grpc.health.v1.Health"} <= set(listed)
