"""What a worker tells of its hottest prefixes, and how it computes those of others."""

import asyncio
import math
import socket
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest
from radixgate.prefix import pack_tokens, unpack_tokens
from radixgate.refused import RefusedError
from radixgate.v1.generate_pb2 import GenerateRequest, Sampling, Scope, Stopping
from radixgate.v1.worker_pb2 import DrainRequest, HotPrefix, HottestRequest, WarmPrompt
from radixgate.v1.worker_pb2_grpc import WorkerStub

from tests.worker.test_worker import KV_BYTES, serve
from worker.engine.request import Request
from worker.main import Worker, WorkerConfig
from worker.serve.scopes import Scopes
from worker.serve.warm import LOWEST_PRIORITY, PIECE_TOKENS, Warmer

pytestmark = pytest.mark.slow

EVERYTHING = 10**9


@pytest.fixture
def config(tiny_llama: Path) -> WorkerConfig:
    """64 blocks of 16 tokens."""
    return WorkerConfig(tiny_llama, device="cpu", kv_memory=4 * KV_BYTES, threads=1, worker_id="w1")


def prompt(*ids: int, length: int = 100, **scope: str) -> GenerateRequest:
    """Its tokens are `ids` and then the last of them again and again."""
    return GenerateRequest(
        packed=pack_tokens([*ids, *[ids[-1]] * (length - len(ids))]),
        scope=Scope(**scope),
        sampling=Sampling(temperature=0),
        stopping=Stopping(max_tokens=1, ignore_eos=True),
    )


async def cached(stub: WorkerStub, request: GenerateRequest) -> int:
    """Serve it; the prompt tokens that were cached."""
    *_, last = [message async for message in stub.Generate(request)]
    return last.finished.cached_tokens


async def hottest(
    worker: Worker, stub: WorkerStub, max_tokens: int = EVERYTHING
) -> list[HotPrefix]:
    asked = HottestRequest(max_tokens=max_tokens, key=worker.hottest_key)
    return [prefix async for prefix in stub.Hottest(asked)]


async def warm(stub: WorkerStub, asked: GenerateRequest, seconds: float | None = None) -> int:
    return (await stub.Warm(WarmPrompt(prompt=asked), timeout=seconds)).computed_tokens


async def test_the_hottest_come_first_and_each_in_its_scope(config: WorkerConfig) -> None:
    async with serve(config) as (worker, stub):
        for times, asked in (
            (4, prompt(5, tenant="a", salt="s")),
            (2, prompt(5, tenant="b")),
            (3, prompt(6)),
            (1, prompt(7)),
        ):
            for _ in range(times):
                await cached(stub, asked)
        found = await hottest(worker, stub)
        assert [(prefix.scope, unpack_tokens(prefix.packed)) for prefix in found] == [
            (Scope(tenant="a", salt="s"), [5] * 96),
            (Scope(), [6] * 96),
            (Scope(tenant="b"), [5] * 96),
        ]
        assert [prefix.hits for prefix in found] == pytest.approx([3, 2, 1], rel=0.02)
        (first,) = await hottest(worker, stub, 96)
        assert first == found[0]
        assert await hottest(worker, stub, 15) == []


@pytest.mark.parametrize("key", [b"", b"a guess"])
async def test_only_who_has_the_key_is_told_what_all_tenants_asked(
    config: WorkerConfig, key: bytes
) -> None:
    async with serve(config) as (_, stub):
        await cached(stub, prompt(5, tenant="a"))
        with pytest.raises(grpc.aio.AioRpcError, match="takes its reports") as refused:
            await anext(aiter(stub.Hottest(HottestRequest(max_tokens=EVERYTHING, key=key))))
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_what_siblings_share_is_told_once(config: WorkerConfig) -> None:
    async with serve(config) as (worker, stub):
        for _ in range(2):
            for own in (8, 9):
                await cached(stub, prompt(*[7] * 64, own, length=128))
        shared, *others = await hottest(worker, stub)
        assert (unpack_tokens(shared.packed), shared.extends) == ([7] * 64, 0)
        assert [(set(unpack_tokens(each.packed)), each.extends) for each in others] == [
            ({9}, 1),
            ({8}, 1),
        ]


async def test_a_worker_that_drains_tells_and_computes_no_more(config: WorkerConfig) -> None:
    async with serve(config) as (worker, stub):
        for _ in range(2):
            await cached(stub, prompt(5))
        await stub.Drain(DrainRequest(grace_seconds=60))
        assert len(await hottest(worker, stub)) == 1
        with pytest.raises(grpc.aio.AioRpcError, match="draining; ask another") as refused:
            await warm(stub, prompt(6))
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_what_is_warmed_is_cached_in_its_namespace_alone(config: WorkerConfig) -> None:
    async with serve(config) as (_, stub):
        assert await warm(stub, prompt(5, length=300, tenant="a")) == 288
        assert await warm(stub, prompt(5, length=300, tenant="a")) == 0
        assert await cached(stub, prompt(5, length=300, tenant="b")) == 0
        assert await cached(stub, prompt(5, length=300, tenant="a")) == 288


async def test_warming_heats_nothing(config: WorkerConfig) -> None:
    async with serve(config) as (worker, stub):
        for length in (100, 200):
            await warm(stub, prompt(5, length=length))
        await cached(stub, prompt(5, length=200))
        (prefix,) = await hottest(worker, stub)
        assert prefix.hits == pytest.approx(1, rel=0.01)
        assert len(unpack_tokens(prefix.packed)) == 96 + 96


async def test_warming_is_no_request_in_the_metrics(config: WorkerConfig) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with serve(replace(config, metrics_port=port)) as (_, stub):
        await warm(stub, prompt(5))
        assert await cached(stub, prompt(5)) == 96
        url = f"http://127.0.0.1:{port}/metrics"
        page = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())
    assert 'radixgate_worker_prompt_tokens_total{source="cached"} 96.0' in page
    assert 'radixgate_worker_prompt_tokens_total{source="new"} 4.0' in page
    assert 'radixgate_worker_requests_total{outcome="length"} 1.0' in page


async def test_what_cannot_be_served_is_refused(config: WorkerConfig) -> None:
    async with serve(config) as (_, stub):
        for wrong, code in (
            (prompt(5, length=2000), grpc.StatusCode.FAILED_PRECONDITION),
            (GenerateRequest(), grpc.StatusCode.INVALID_ARGUMENT),
            (prompt(5, adapter="x"), grpc.StatusCode.NOT_FOUND),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await warm(stub, wrong)
            assert refused.value.code() is code


class PretendedEngine:
    """Of `Prefill`, computing nothing: its prompts are cached at once, as far as memory goes."""

    def __init__(self, memory: float = math.inf) -> None:
        self.load = SimpleNamespace(waiting=0, running=0, max_running=4, backlog_tokens=0)
        self.pieces: list[int] = []
        self.then: Callable[[], None] = lambda: None
        self._memory = memory

    def admit(self, message: GenerateRequest) -> Request:
        return Request("r", 1, message.packed, 1)  # type: ignore[arg-type]

    async def ask(self, question: Callable[[Any], int]) -> int:
        reached = self.pieces[-1] if self.pieces else 0
        return question(SimpleNamespace(cached=lambda _: min(reached, self._memory)))

    async def compute(self, request: Request) -> None:
        assert request.priority == LOWEST_PRIORITY
        self.pieces.append(request.prompt_tokens)
        self.then()


LONG = prompt(5, length=3 * PIECE_TOKENS)


@pytest.mark.parametrize(
    "busy",
    [
        {"waiting": 1},
        {"running": 4, "backlog_tokens": 4},
        {"running": 2, "backlog_tokens": 3},
    ],
)
async def test_a_piece_waits_for_the_prompts_of_clients(busy: dict[str, int]) -> None:
    engine = PretendedEngine()
    warmer = Warmer("w", engine, 16, lambda: False)  # type: ignore[arg-type]
    engine.then = lambda: vars(engine.load).update(busy)
    warming = asyncio.create_task(warmer.warm(LONG, 60))
    await asyncio.sleep(0.1)
    assert engine.pieces == [PIECE_TOKENS]
    engine.then = lambda: None
    vars(engine.load).update(waiting=0, running=2, backlog_tokens=2)
    assert (await warming).computed_tokens == 3 * PIECE_TOKENS
    assert engine.pieces == [PIECE_TOKENS, 2 * PIECE_TOKENS, 3 * PIECE_TOKENS]


async def test_a_worker_that_is_never_free_gives_up_in_time() -> None:
    engine = PretendedEngine()
    engine.load.waiting = 1
    warmer = Warmer("w", engine, 16, lambda: False)  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match="had no time") as refused:
        await warmer.warm(LONG, 0.05)
    assert refused.value.code is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_worker_that_begins_to_leave_stops() -> None:
    engine = PretendedEngine()
    warmer = Warmer("w", engine, 16, lambda: len(engine.pieces) == 2)  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match="w is draining"):
        await warmer.warm(LONG, 60)


async def test_what_is_evicted_at_once_is_not_computed_for_ever() -> None:
    engine = PretendedEngine(memory=PIECE_TOKENS + 16)
    warmer = Warmer("w", engine, 16, lambda: False)  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match="240 were evicted at once") as refused:
        await warmer.warm(LONG, 60)
    assert refused.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_scopes_are_forgotten_when_they_are_not_used() -> None:
    scopes = Scopes("f", limit=2)
    a, b, c = Scope(tenant="a"), Scope(salt="b"), Scope(adapter="c")
    seeds = [scopes.use(each) for each in (a, b, a, c)]
    assert [scopes.find(seed) for seed in seeds] == [a, None, a, c]
