"""A worker with too little memory and clients of every kind: it gives back all that it took.

Memory is counted in blocks, in sequences that are still alive, and in bytes of the process.
"""

import asyncio
import gc
import random
from pathlib import Path

import grpc
import grpc.aio
import pytest
from radixgate.prefix import pack_tokens
from radixgate.v1.generate_pb2 import GenerateRequest, GenerateResponse, Sampling, Stopping
from radixgate.v1.worker_pb2_grpc import WorkerStub

from tests.worker.test_worker import KV_BYTES, idle, serve
from worker.engine.sequence import Sequence
from worker.main import Worker, WorkerConfig

pytestmark = pytest.mark.slow

ENDS = {grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED}
MEGABYTE = 2**20


def ask(prompt: list[int], max_tokens: int, **options: object) -> GenerateRequest:
    return GenerateRequest(
        packed=pack_tokens(prompt),
        sampling=Sampling(temperature=0),
        stopping=Stopping(max_tokens=max_tokens, ignore_eos=True),
        **options,
    )


class Crowd:
    """Clients that come in waves: patient, leaving, late and slow ones."""

    def __init__(self, stub: WorkerStub) -> None:
        self.finished = self.gone = 0
        self._stub = stub
        self._chance = random.Random(11)
        self._answers: dict[tuple[bytes, int], list[int]] = {}

    async def wave(self, clients: int, at_once: int) -> None:
        places = asyncio.Semaphore(at_once)

        async def client() -> None:
            async with places:
                await self._visit()

        await asyncio.gather(*(client() for _ in range(clients)))

    async def _visit(self) -> None:
        chance = self._chance
        shared = list(range(3, 3 + chance.choice([0, 64, 128])))
        prompt = [*shared, *[chance.randrange(200, 260)] * chance.randint(1, 30)]
        request = ask(prompt, chance.choice([1, 1, 2, 4, 40]), priority=chance.randint(-1, 1))
        late = chance.random() < 0.2
        timeout = chance.choice([0.001, 0.01, 0.05, 0.2]) if late else None
        call = self._stub.Generate(request, timeout=timeout)
        stay = chance.choice([0, 1, 2]) if chance.random() < 0.3 else 1000
        slow = chance.random() < 0.1
        tokens: list[int] = []
        try:
            for _ in range(stay):
                message = await call.read()
                if message is grpc.aio.EOF:
                    break
                assert isinstance(message, GenerateResponse)
                tokens += message.tokens.ids
                if message.HasField("finished"):
                    self._check(request, tokens)
                if slow:
                    await asyncio.sleep(0.02)
            else:
                call.cancel()
        except (grpc.aio.AioRpcError, asyncio.CancelledError):
            pass
        code = await call.code()
        assert code is grpc.StatusCode.OK or code in ENDS, await call.details()
        self.gone += code in ENDS

    def _check(self, request: GenerateRequest, tokens: list[int]) -> None:
        """Equal prompts have equal answers, whatever happened around them."""
        self.finished += 1
        assert len(tokens) == request.stopping.max_tokens
        known = self._answers.setdefault((request.packed, len(tokens)), tokens)
        assert known == tokens


def sequences_alive() -> int:
    gc.collect()
    return sum(type(each) is Sequence for each in gc.get_objects())


def resident_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


async def all_is_given_back(running: Worker) -> None:
    await idle(running)
    kv = running.engine.load.kv
    assert kv.free_blocks + kv.cached_blocks == kv.total_blocks
    assert await running.drain.run(10) == 0
    running.drain.refuses.clear()
    assert sequences_alive() == 0


@pytest.fixture
def config(tiny_llama: Path) -> WorkerConfig:
    return WorkerConfig(
        tiny_llama, device="cpu", kv_memory=KV_BYTES, threads=1, max_running=6, token_budget=48
    )


async def test_memory_returns_to_its_level_whatever_clients_do(config: WorkerConfig) -> None:
    async with serve(config) as (running, stub):
        crowd = Crowd(stub)
        await crowd.wave(400, at_once=32)
        await all_is_given_back(running)
        level = resident_bytes()
        for _ in range(4):
            await crowd.wave(400, at_once=32)
            await all_is_given_back(running)
        assert not running.failed.done()
        assert resident_bytes() - level < 24 * MEGABYTE
        assert crowd.finished > 500
        assert crowd.gone > 200
        assert running.engine.load.kv.evicted_blocks > 100


async def test_who_does_not_read_stands_in_nobodys_way(config: WorkerConfig) -> None:
    async with serve(config) as (running, stub):
        silent = [stub.Generate(ask([5 + index] * 20, 60)) for index in range(4)]
        for _ in range(10):
            messages = [message async for message in stub.Generate(ask([9] * 40, 3))]
            assert messages[-1].finished.output_tokens == 3
        await idle(running)
        for call in silent:
            messages = [message async for message in call]
            assert messages[-1].finished.output_tokens == 60
        await all_is_given_back(running)


async def test_a_deadline_ends_a_request_that_waits_computes_or_generates(
    config: WorkerConfig,
) -> None:
    roomy = WorkerConfig(config.model, device="cpu", kv_memory=8 * KV_BYTES, max_running=1)
    async with serve(roomy) as (running, stub):
        # So long that no machine is done with it in time.
        generating = aiter(stub.Generate(ask([5] * 20, 1900), timeout=0.4))
        await anext(generating)
        waiting = aiter(stub.Generate(ask([6] * 200, 1), timeout=0.1))
        for messages in (waiting, generating):
            with pytest.raises(grpc.aio.AioRpcError) as late:
                _ = [message async for message in messages]
            assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await all_is_given_back(running)
