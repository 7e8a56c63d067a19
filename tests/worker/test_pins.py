"""Pins at a worker, over gRPC with a tiny model: kept through floods, bounded, ended by time."""

import asyncio
import socket
import urllib.request
from dataclasses import replace
from pathlib import Path

import grpc
import grpc.aio
import pytest
from radixgate.prefix import pack_tokens
from radixgate.v1.generate_pb2 import GenerateRequest, Pinned, Sampling, Scope, Stopping
from radixgate.v1.worker_pb2 import PinPrompt, UnpinPrompt
from radixgate.v1.worker_pb2_grpc import WorkerStub

from tests.worker.test_worker import KV_BYTES, serve
from worker.main import Worker, WorkerConfig

pytestmark = pytest.mark.slow


@pytest.fixture
def config(tiny_llama: Path) -> WorkerConfig:
    """16 blocks of 16 tokens, of which pins may hold 8."""
    return WorkerConfig(
        tiny_llama, device="cpu", kv_memory=KV_BYTES, threads=1, worker_id="w1", pin_share=0.5
    )


def prompt(first: int, length: int = 100, tenant: str = "") -> GenerateRequest:
    return GenerateRequest(
        packed=pack_tokens(range(first, first + length)),
        scope=Scope(tenant=tenant),
        sampling=Sampling(temperature=0),
        stopping=Stopping(max_tokens=2, ignore_eos=True),
    )


async def cached(stub: WorkerStub, request: GenerateRequest) -> int:
    """Serve it; the prompt tokens that were cached."""
    *_, last = [message async for message in stub.Generate(request)]
    return last.finished.cached_tokens


async def flood(stub: WorkerStub) -> None:
    """More than the whole memory."""
    for first in range(100, 300, 50):
        await cached(stub, prompt(first))


async def until_pinned(running: Worker, blocks: int) -> None:
    """The load is taken after an answer, not before it."""
    async with asyncio.timeout(20):
        while running.engine.load.kv.pinned_blocks != blocks:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def refusal(call: grpc.aio.Call) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def test_a_pin_computes_what_is_missing_and_keeps_it(config: WorkerConfig) -> None:
    async with serve(config) as (running, stub):
        pinned = await stub.Pin(PinPrompt(prompt=prompt(3), ttl_seconds=60))
        assert pinned == Pinned(worker="w1", prompt_tokens=100, pinned_tokens=96)
        await until_pinned(running, 6)
        await flood(stub)
        assert await cached(stub, prompt(3)) == 96
        await stub.Unpin(UnpinPrompt(prompt=prompt(3)))
        await flood(stub)
        assert await cached(stub, prompt(3)) == 0


async def test_a_pin_is_no_request_in_the_metrics(config: WorkerConfig) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with serve(replace(config, metrics_port=port)) as (_, stub):
        await stub.Pin(PinPrompt(prompt=prompt(3), ttl_seconds=60))
        assert await cached(stub, prompt(3)) == 96
        url = f"http://127.0.0.1:{port}/metrics"
        page = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())
    assert 'radixgate_worker_prompt_tokens_total{source="cached"} 96.0' in page
    assert 'radixgate_worker_prompt_tokens_total{source="new"} 4.0' in page
    assert 'radixgate_worker_requests_total{outcome="length"} 1.0' in page
    assert "radixgate_worker_time_to_first_token_seconds_count 1.0" in page


async def test_a_pin_ends_by_itself(config: WorkerConfig) -> None:
    async with serve(config) as (running, stub):
        await stub.Pin(PinPrompt(prompt=prompt(3), ttl_seconds=1e-9))
        await flood(stub)
        assert running.engine.load.kv.pinned_blocks == 0
        assert await cached(stub, prompt(3)) == 0
        gone = await refusal(stub.Unpin(UnpinPrompt(prompt=prompt(3))))
        assert gone.code() == grpc.StatusCode.NOT_FOUND
        assert "has no pin of this prompt of 100 tokens for tenant ''" in (gone.details() or "")


async def test_pins_are_bounded_and_their_error_says_by_what(config: WorkerConfig) -> None:
    async with serve(config) as (running, stub):
        await stub.Pin(PinPrompt(prompt=prompt(3), ttl_seconds=60))
        computed = running.engine.load.kv.running_blocks
        full = await refusal(stub.Pin(PinPrompt(prompt=prompt(200), ttl_seconds=60)))
        assert full.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        details = full.details() or ""
        assert "6 blocks needs 6 more; pins of all tenants hold 6 blocks and may hold 8" in details
        assert "--pin-share" in details
        assert running.engine.load.kv.running_blocks == computed
        again = await stub.Pin(PinPrompt(prompt=prompt(3), ttl_seconds=60))
        assert again.pinned_tokens == 96


async def test_a_pin_is_of_its_tenant(config: WorkerConfig) -> None:
    async with serve(config) as (_, stub):
        await stub.Pin(PinPrompt(prompt=prompt(3, tenant="a"), ttl_seconds=60))
        other = await refusal(stub.Unpin(UnpinPrompt(prompt=prompt(3, tenant="b"))))
        assert other.code() == grpc.StatusCode.NOT_FOUND
        await stub.Unpin(UnpinPrompt(prompt=prompt(3, tenant="a")))


async def test_a_prompt_that_needs_all_memory_is_served_in_spite_of_pins(
    config: WorkerConfig,
) -> None:
    async with serve(config) as (_, stub):
        await stub.Pin(PinPrompt(prompt=prompt(3), ttl_seconds=60))
        assert await cached(stub, prompt(100, length=250)) == 0


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), 8 * 24 * 3600])
async def test_a_time_out_of_range_is_refused(config: WorkerConfig, ttl: float) -> None:
    async with serve(config) as (_, stub):
        wrong = await refusal(stub.Pin(PinPrompt(prompt=prompt(3), ttl_seconds=ttl)))
        assert wrong.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "ttl_seconds" in (wrong.details() or "")


async def test_a_prompt_that_fills_no_block_is_refused(config: WorkerConfig) -> None:
    async with serve(config) as (_, stub):
        short = await refusal(stub.Pin(PinPrompt(prompt=prompt(3, 15), ttl_seconds=60)))
        assert short.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "15 tokens fill no block of 16" in (short.details() or "")
        pinned = await stub.Pin(PinPrompt(prompt=prompt(3, 16), ttl_seconds=60))
        assert pinned.pinned_tokens == 16


async def test_shares_reach_the_memory(config: WorkerConfig) -> None:
    config = replace(config, tenant_shares="small:0-0.5", eviction="cost")
    async with serve(config) as (_, stub):
        assert await cached(stub, prompt(3, 110, tenant="small")) == 0
        *_, call = [stub.Generate(prompt(3, 200, tenant="small"))]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            [message async for message in call]
        assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert "KV memory of 128 tokens" in (caught.value.details() or "")


async def test_a_pin_at_a_broken_engine_says_so(
    config: WorkerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise AssertionError("the tree is wrong")

    monkeypatch.setattr("worker.kv.manager.KVManager.pin", broken)
    async with serve(config) as (running, stub):
        for _ in range(2):
            failed = await refusal(stub.Pin(PinPrompt(prompt=prompt(3), ttl_seconds=60)))
            assert failed.code() == grpc.StatusCode.INTERNAL
            assert "the tree is wrong" in (failed.details() or "")
        with pytest.raises(AssertionError, match="the tree is wrong"):
            await running.failed
