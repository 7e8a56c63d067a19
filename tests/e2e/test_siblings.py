"""Four gateway processes, one of them killed: what they reserve counts in all of them, once."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress

import grpc.aio
import pytest
from radixgate.prefix import pack_tokens
from radixgate.v1.gateway_pb2 import TRUST_LIVE, ListWorkersRequest, RouteRequest
from radixgate.v1.gateway_pb2_grpc import GatewayStub
from radixgate.v1.generate_pb2 import GenerateRequest, GenerateResponse

from gateway.route.router import PEER_SILENCE
from tests.e2e.processes import Fleet, Process, free_port
from tests.gateway.doubles import ScriptedWorker, echo, make_card
from tests.gateway.harness import until

pytestmark = pytest.mark.slow

WORKERS, GATEWAYS, SIBLINGS = 8, 4, 64
PREFIX = pack_tokens([5 + at % 900 for at in range(3840)])


class Held:
    """Workers that answer when told, the fleet's gateways, and a way to ask each of these."""

    def __init__(self, gateways: list[Process], stubs: list[GatewayStub]) -> None:
        self.gateways = gateways
        self.stubs = stubs
        self.go_on = asyncio.Event()
        self.workers = [
            ScriptedWorker(f"w{at}", make_card(), self._answer) for at in range(WORKERS)
        ]

    async def _answer(
        self, request: GenerateRequest, worker: ScriptedWorker
    ) -> AsyncIterator[GenerateResponse]:
        await self.go_on.wait()
        async for response in echo(request, worker):
            yield response

    def busy(self) -> dict[str, int]:
        return {worker.name: len(worker.requests) for worker in self.workers if worker.requests}

    async def expected(self, stub: GatewayStub, request: GenerateRequest) -> dict[str, int]:
        explained = await stub.Explain(RouteRequest(generate=request))
        return {each.worker: each.expected_tokens for each in explained.candidates}

    async def all_live(self) -> bool:
        for stub in self.stubs:
            infos = (await stub.ListWorkers(ListWorkersRequest())).workers
            if [info.trust for info in infos] != [TRUST_LIVE] * WORKERS:
                return False
        return True


async def generate(stub: GatewayStub, request: GenerateRequest) -> list[GenerateResponse]:
    return [response async for response in stub.Generate(request)]


@pytest.fixture
async def held(fleet: Fleet) -> AsyncIterator[Held]:
    redis_port, ports = free_port(), [free_port() for _ in range(GATEWAYS)]
    fleet.redis(redis_port).start()
    gateways = [fleet.gateway(port, redis_port) for port in ports]
    for gateway in gateways:
        gateway.launch()
    for gateway in gateways:
        gateway.wait_ready()
    async with AsyncExitStack() as stack:
        stubs = []
        for port in ports:
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
            stubs.append(GatewayStub(await stack.enter_async_context(channel)))
        it = Held(gateways, stubs)
        for at, worker in enumerate(it.workers):
            port = ports[at % (GATEWAYS - 1)]  # None reports to the last gateway.
            await stack.enter_async_context(worker.running(f"127.0.0.1:{port}"))
        await until(it.all_live)
        yield it


async def test_siblings_of_one_prefix_are_computed_by_at_most_two_workers(held: Held) -> None:
    rng = random.Random(3)
    siblings = [
        GenerateRequest(packed=PREFIX + pack_tokens(rng.randrange(900) for _ in range(20)))
        for _ in range(SIBLINGS)
    ]
    running = [
        asyncio.create_task(generate(held.stubs[at % GATEWAYS], sibling))
        for at, sibling in enumerate(siblings)
    ]

    async def all_sent() -> bool:
        return sum(held.busy().values()) == SIBLINGS

    await until(all_sent)
    busy = held.busy()
    held.go_on.set()
    await asyncio.gather(*running)
    assert len(busy) <= 2, busy


async def test_what_a_killed_gateway_reserved_is_forgotten(held: Held) -> None:
    request = GenerateRequest(packed=PREFIX)
    *others, last = held.stubs
    running = asyncio.create_task(generate(last, request))

    async def all_expect(tokens: int) -> bool:
        expected = [await held.expected(stub, request) for stub in others]
        return all(max(each.values()) == tokens for each in expected)

    await until(lambda: all_expect(3840))
    held.gateways[-1].kill()
    with suppress(grpc.aio.AioRpcError):
        await running
    await until(lambda: all_expect(0), PEER_SILENCE + 5)
