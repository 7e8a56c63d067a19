"""A worker that leaves: it takes on until the gateways know, finishes, and ends what is left."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from radixgate.v1.generate_pb2 import GenerateResponse
from radixgate.v1.worker_pb2 import DrainRequest
from radixgate.v1.worker_pb2_grpc import WorkerStub

from tests.worker.test_report import Gateway, serving
from tests.worker.test_worker import KV_BYTES, collect, generation, serve
from worker.main import WorkerConfig
from worker.serve import drain

pytestmark = pytest.mark.slow


@pytest.fixture
def config(tiny_llama: Path) -> WorkerConfig:
    return WorkerConfig(tiny_llama, device="cpu", kv_memory=KV_BYTES, threads=1, worker_id="w1")


async def rest(call: Any) -> list[GenerateResponse]:
    """What is still to come."""
    messages = []
    while (message := await call.read()) is not grpc.aio.EOF:
        messages.append(message)
    return messages


async def test_what_runs_is_finished_and_no_more_is_taken(config: WorkerConfig) -> None:
    async with serve(config) as (running, stub):
        call = stub.Generate(generation(max_tokens=60))
        assert (await call.read()).HasField("started")
        drained = asyncio.ensure_future(stub.Drain(DrainRequest(grace_seconds=60)))
        await running.drain.refuses.wait()
        with pytest.raises(grpc.aio.AioRpcError, match="w1 is draining; ask another") as refused:
            await collect(stub, generation())
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        *_, last = await rest(call)
        assert last.finished.output_tokens == 60
        assert (await drained).unfinished == 0


async def test_what_was_left_after_the_grace_is_told_and_goes_on(config: WorkerConfig) -> None:
    async with serve(config) as (_, stub):
        call = stub.Generate(generation(max_tokens=150))
        await call.read()
        assert (await stub.Drain(DrainRequest(grace_seconds=0))).unfinished == 1
        assert await call.read() is not grpc.aio.EOF
        call.cancel()


async def test_what_outlasts_the_grace_ends_with_a_status_that_is_retried(
    config: WorkerConfig,
) -> None:
    async with serve(config) as (running, stub):
        call = stub.Generate(generation(max_tokens=150))
        await call.read()
        await running.leave(grace_seconds=0)
        with pytest.raises(grpc.aio.AioRpcError, match="w1 has left") as ended:
            await rest(call)
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_requests_are_taken_until_the_gateways_know(
    config: WorkerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "TELL_SECONDS", 60)
    gateway = Gateway()
    gateway.confirms = False
    async with (
        serving(gateway) as port,
        serve(replace(config, gateways=(f"127.0.0.1:{port}",))) as (running, stub),
    ):
        await gateway.until(lambda: bool(gateway.loads))
        leaving = asyncio.create_task(running.leave(60))
        await gateway.until(lambda: gateway.loads[-1].draining)
        *_, last = await collect(stub, generation())
        assert last.finished.output_tokens == 8
        assert not running.drain.refuses.is_set()
        gateway.confirms = True
        await leaving
        assert running.drain.refuses.is_set()


async def test_a_gateway_that_does_not_confirm_is_not_waited_for_long(
    config: WorkerConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(drain, "TELL_SECONDS", 0.05)
    gateway = Gateway()
    gateway.confirms = False
    async with (
        serving(gateway) as port,
        serve(replace(config, gateways=(f"127.0.0.1:{port}",))) as (running, _),
    ):
        await gateway.until(lambda: bool(gateway.loads))
        await running.leave(600)
    assert "no gateway has confirmed" in caplog.text


PROCESS = """
import logging, sys
from pathlib import Path
from typing import Any
from worker.main import WorkerConfig, run_worker
logging.basicConfig(level=logging.INFO)
run_worker(WorkerConfig(Path(sys.argv[1]), device="cpu", threads=1, grace_seconds=600))
"""


@asynccontextmanager
async def worker_process(model: Path) -> AsyncIterator[tuple[Process, str]]:
    """The process, and its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROCESS, str(model), stderr=PIPE
    )
    try:
        line = await logged(process, b"worker ready on ")
        yield process, line.decode().rpartition(" ")[2].strip()
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def logged(process: Process, words: bytes) -> bytes:
    """The next line of its log that has these words."""
    assert process.stderr
    async for line in process.stderr:
        if words in line:
            return line
    raise AssertionError(f"the worker has ended and did not log {words!r}")


async def test_a_process_drains_on_sigterm_and_exits_cleanly(tiny_llama: Path) -> None:
    async with (
        worker_process(tiny_llama) as (process, address),
        grpc.aio.insecure_channel(address) as channel,
    ):
        health = health_pb2_grpc.HealthStub(channel)
        ask = health_pb2.HealthCheckRequest()
        assert (await health.Check(ask)).status == health_pb2.HealthCheckResponse.SERVING
        call = WorkerStub(channel).Generate(generation(max_tokens=300))
        await call.read()
        process.send_signal(signal.SIGTERM)
        await logged(process, b"draining")
        watch = aiter(health.Watch(ask))
        while (await anext(watch)).status != health_pb2.HealthCheckResponse.NOT_SERVING:
            pass
        *_, last = await rest(call)
        assert last.finished.output_tokens == 300
        assert process.stderr
        await process.stderr.read()
        assert await process.wait() == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_stops_at_once(tiny_llama: Path, second: signal.Signals) -> None:
    async with (
        worker_process(tiny_llama) as (process, address),
        grpc.aio.insecure_channel(address) as channel,
    ):
        call = WorkerStub(channel).Generate(generation(max_tokens=4000))
        await call.read()
        process.send_signal(signal.SIGTERM)
        await logged(process, b"draining")
        process.send_signal(second)
        async with asyncio.timeout(60):
            await logged(process, b"a second signal")
            assert await process.wait() == 128 + second
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await rest(call)
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
