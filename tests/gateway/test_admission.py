"""Requests that wait in a whole gateway: for a first worker, for room, and for nothing at all."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from grpc import StatusCode
from radixgate import errors
from radixgate.client import AsyncClient
from radixgate.v1.gateway_pb2 import ListModelsRequest, RouteRequest
from radixgate.v1.generate_pb2 import GenerateRequest, GenerateResponse

from gateway.config import ConfigError, GatewayConfig
from gateway.main import gateway
from tests.gateway.doubles import ScriptedWorker, echo, make_card
from tests.gateway.harness import PROMPT, REQUEST, Client, serving, until, working
from tests.summary.valkey import Valkey

pytestmark = pytest.mark.slow


class BusyWorker(ScriptedWorker):
    """Has one slot, so that it is sent two requests, and keeps each until `release`."""

    def __init__(self, name: str) -> None:
        super().__init__(name, make_card(), self._hold)
        self.load.max_running = 1
        self._released = asyncio.Semaphore(0)

    def release(self) -> None:
        """Let one request more be answered."""
        self._released.release()

    async def _hold(
        self, request: GenerateRequest, worker: ScriptedWorker
    ) -> AsyncIterator[GenerateResponse]:
        self.load.running += 1
        try:
            await self._released.acquire()
            async for response in echo(request, worker):
                yield response
        finally:
            self.load.running -= 1


async def waiting(client: Client) -> int:
    return sum(
        model.waiting for model in (await client.gateway.ListModels(ListModelsRequest())).models
    )


async def one_waits(client: Client) -> None:
    async def waits() -> bool:
        return await waiting(client) == 1

    await until(waits)


async def sent(worker: ScriptedWorker, count: int) -> None:
    async def all_sent() -> bool:
        return len(worker.requests) == count

    await until(all_sent)


async def test_a_request_waits_for_the_first_worker_of_all(valkey: Valkey) -> None:
    async with serving(valkey) as client:
        request = asyncio.create_task(client.generate())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(request), 0.3)
        async with ScriptedWorker("a", make_card()).running(client.address):
            assert (await asyncio.wait_for(request, 20))[0].started.worker == "a"


async def test_a_request_waits_for_a_worker_of_a_model_that_lost_them_all(valkey: Valkey) -> None:
    async with serving(valkey) as client:
        async with working(client, ScriptedWorker("a", make_card())):
            await client.generate()

        async def nobody_left() -> bool:
            return not await client.workers()

        await until(nobody_left)
        request = asyncio.create_task(client.generate(GenerateRequest(model="words", text="1")))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(request), 0.3)
        assert (await client.failure(GenerateRequest(model="x", text="1"))).code() is (
            StatusCode.NOT_FOUND
        )
        async with ScriptedWorker("b", make_card()).running(client.address):
            assert (await asyncio.wait_for(request, 20))[0].started.worker == "b"


async def test_a_wait_for_a_worker_ends_with_the_reason(valkey: Valkey) -> None:
    worker = ScriptedWorker("a", make_card())
    async with serving(valkey, queue_seconds=0.2) as client:
        error = await client.failure()
        assert error.code() is StatusCode.UNAVAILABLE
        assert str(error.details()).startswith("no worker has registered at this gateway yet; wait")
        async with working(client, worker):
            worker.load.draining = True

            async def draining() -> bool:
                return (await client.workers())[0].load.draining

            await until(draining)
            assert "a: draining; it waited" in str((await client.failure()).details())


async def test_a_bad_request_does_not_wait_for_a_worker(valkey: Valkey) -> None:
    async with serving(valkey) as client:
        error = await asyncio.wait_for(client.failure(GenerateRequest(text="")), 10)
        assert error.code() is StatusCode.INVALID_ARGUMENT


async def test_what_a_worker_has_no_room_for_waits_in_the_gateway(valkey: Valkey) -> None:
    worker = BusyWorker("a")
    async with serving(valkey) as client, working(client, worker):
        requests = [asyncio.create_task(client.generate()) for _ in range(3)]
        await sent(worker, 2)
        await one_waits(client)
        worker.release()
        await sent(worker, 3)
        assert await waiting(client) == 0
        worker.release()
        worker.release()
        assert all(responses for responses in await asyncio.gather(*requests))


async def test_another_worker_is_room_at_once(valkey: Valkey) -> None:
    busy, idle = BusyWorker("busy"), ScriptedWorker("idle", make_card())
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(serving(valkey))
        await stack.enter_async_context(working(client, busy))
        requests = [asyncio.create_task(client.generate()) for _ in range(3)]
        await one_waits(client)

        async def reported() -> bool:
            return (await client.workers())[0].load.running == 2

        await until(reported)
        await stack.enter_async_context(idle.running(client.address))
        await sent(idle, 1)
        for _ in range(2):
            busy.release()
        await asyncio.gather(*requests)


async def test_a_client_that_goes_while_it_waits_is_never_sent(valkey: Valkey) -> None:
    worker = BusyWorker("a")
    async with serving(valkey) as client, working(client, worker):
        requests = [asyncio.create_task(client.generate()) for _ in range(2)]
        await sent(worker, 2)
        gone = client.gateway.Generate(GenerateRequest(text="9"))
        await one_waits(client)
        gone.cancel()

        async def nobody_waits() -> bool:
            return await waiting(client) == 0

        await until(nobody_waits)
        for _ in range(3):
            worker.release()
        await asyncio.gather(*requests)
        await client.generate()
        assert [request.packed for request in worker.requests] == [PROMPT] * 3


async def test_route_waits_for_its_turn_too(valkey: Valkey) -> None:
    worker = BusyWorker("a")
    async with serving(valkey) as client, working(client, worker):
        requests = [asyncio.create_task(client.generate()) for _ in range(2)]
        await sent(worker, 2)
        route = client.gateway.Route(RouteRequest(generate=REQUEST))
        await one_waits(client)
        worker.release()
        assert (await route).worker == "a"
        worker.release()
        await asyncio.gather(*requests)


async def test_an_overloaded_gateway_says_when_to_retry(valkey: Valkey) -> None:
    worker = BusyWorker("a")
    async with serving(valkey, queue_limit=0) as client, working(client, worker):
        requests = [asyncio.create_task(client.generate()) for _ in range(2)]
        await sent(worker, 2)
        async with AsyncClient(client.address) as asking:
            with pytest.raises(errors.Overloaded, match=r"retry in 1\.0 s") as caught:
                await asking.generate("1").result()
        assert caught.value.retry_seconds == 1.0
        for _ in range(2):
            worker.release()
        await asyncio.gather(*requests)


async def test_wrong_weights_are_named() -> None:
    with pytest.raises(ConfigError, match="tenant weight 'acme'"):
        async with gateway(GatewayConfig(port=0, tenant_weights="acme")):
            pass
