"""A worker that comes to a pool in which another is warm, through a whole gateway."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from radixgate.prefix import pack_tokens
from radixgate.v1.generate_pb2 import GenerateRequest, GenerateResponse

from tests.gateway.doubles import ScriptedWorker, echo, make_card
from tests.gateway.harness import PROMPT, REQUEST, Client, serving, until, working
from tests.summary.valkey import Valkey

pytestmark = pytest.mark.slow


def stranger(first: int) -> GenerateRequest:
    return GenerateRequest(packed=pack_tokens([first + at % 300 for at in range(640)]))


def sibling(own: int) -> GenerateRequest:
    return GenerateRequest(packed=PROMPT + pack_tokens([own, own]))


async def served_by(client: Client, request: GenerateRequest) -> str:
    return (await client.generate(request))[0].started.worker


def warm_worker() -> ScriptedWorker:
    worker = ScriptedWorker("warm", make_card())
    worker.load.free_blocks = 500
    worker.store(PROMPT)
    return worker


def cold_worker() -> ScriptedWorker:
    worker = ScriptedWorker("cold", make_card())
    worker.load.prefill_tokens_per_second = 0
    return worker


async def knows_backlog(client: Client, worker: ScriptedWorker, tokens: int) -> None:
    worker.load.backlog_tokens = tokens

    async def reported() -> bool:
        loads = {info.worker: info.load for info in await client.workers()}
        return loads[worker.name].backlog_tokens == tokens

    await until(reported)


async def test_it_gets_misses_at_once_and_the_hot_prefix_when_waiting_costs_more(
    valkey: Valkey,
) -> None:
    warm, cold = warm_worker(), cold_worker()
    async with serving(valkey) as client, working(client, warm, cold):
        assert await served_by(client, REQUEST) == "warm"
        assert await served_by(client, stranger(100)) == "cold"
        for backlog, chosen in ((0, "warm"), (700, "warm"), (4000, "cold"), (0, "warm")):
            await knows_backlog(client, warm, backlog)
            assert await served_by(client, REQUEST) == chosen


async def test_siblings_that_come_at_once_are_not_thrown_at_it(valkey: Valkey) -> None:
    warm, cold = warm_worker(), cold_worker()
    together = asyncio.Event()

    async def waiting(
        request: GenerateRequest, worker: ScriptedWorker
    ) -> AsyncIterator[GenerateResponse]:
        await together.wait()
        async for response in echo(request, worker):
            yield response

    warm.script = cold.script = waiting
    async with serving(valkey) as client, working(client, warm, cold):
        burst = [asyncio.create_task(served_by(client, sibling(own))) for own in range(100, 107)]

        async def all_sent() -> bool:
            return len(warm.requests) + len(cold.requests) == len(burst)

        await until(all_sent)
        together.set()
        assert set(await asyncio.gather(*burst)) == {"warm"}
