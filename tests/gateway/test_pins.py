"""Pins through a whole gateway with a real Valkey: where they are made, and given up everywhere."""

import asyncio

import grpc.aio
import pytest
from grpc import StatusCode
from radixgate import errors
from radixgate.client import AsyncClient, Client
from radixgate.prefix import pack_tokens
from radixgate.v1.gateway_pb2 import PinRequest, UnpinRequest
from radixgate.v1.generate_pb2 import Pinned
from radixgate.v1.worker_pb2 import PinPrompt, Unpinned, UnpinPrompt

from tests.gateway.doubles import ScriptedWorker, make_card
from tests.gateway.harness import PROMPT, serving, until, working
from tests.gateway.harness import Client as Harness
from tests.summary.valkey import Valkey

pytestmark = pytest.mark.slow


class PinningWorker(ScriptedWorker):
    """Keeps the prompts that it is asked to keep; `full` has no room for any."""

    def __init__(self, name: str, *, full: bool = False) -> None:
        super().__init__(name, make_card())
        self.full = full
        self.pins: dict[bytes, float] = {}

    async def Pin(self, request: PinPrompt, context: grpc.aio.ServicerContext) -> Pinned:
        if self.full:
            await context.abort(StatusCode.RESOURCE_EXHAUSTED, "pins hold all that they may")
        self.pins[request.prompt.packed] = request.ttl_seconds
        tokens = len(request.prompt.packed) // 4
        return Pinned(worker=self.name, prompt_tokens=tokens, pinned_tokens=tokens // 16 * 16)

    async def Unpin(self, request: UnpinPrompt, context: grpc.aio.ServicerContext) -> Unpinned:
        if self.pins.pop(request.prompt.packed, None) is None:
            await context.abort(StatusCode.NOT_FOUND, "no such pin")
        return Unpinned()


async def holds(client: Harness, worker: str) -> None:
    """Wait until the gateway knows that `worker` holds something."""

    async def reported() -> bool:
        counts = {info.worker: info.summary.count for info in await client.workers()}
        return counts[worker] > 0

    await until(reported)


async def test_a_pin_goes_to_the_worker_that_holds_the_prompt(valkey: Valkey) -> None:
    a, b = PinningWorker("a"), PinningWorker("b")
    async with serving(valkey) as gateway, working(gateway, a, b):
        b.store(PROMPT)
        await holds(gateway, "b")
        b.load.waiting = 100
        b.load.backlog_tokens = 1_000_000
        async with AsyncClient(gateway.address) as client:
            for _ in range(3):
                pinned = await client.pin(PROMPT, ttl=60)
                assert pinned == Pinned(worker="b", prompt_tokens=640, pinned_tokens=640)
            assert (a.pins, b.pins) == ({}, {PROMPT: 60})
            assert await client.unpin(PROMPT) == ["b"]
            assert b.pins == {}


async def test_a_worker_without_room_is_passed_over(valkey: Valkey) -> None:
    a, b = PinningWorker("a", full=True), PinningWorker("b")
    async with serving(valkey) as gateway, working(gateway, a, b):
        a.store(PROMPT)
        await holds(gateway, "a")
        async with AsyncClient(gateway.address) as client:
            assert (await client.pin(PROMPT, ttl=60)).worker == "b"
            b.full = True
            with pytest.raises(errors.Overloaded, match=r"worker 'a' at .*; worker 'b' at .*hold"):
                await client.pin(PROMPT, ttl=60)


async def test_unpin_asks_all_and_says_when_nobody_has_it(valkey: Valkey) -> None:
    a, b = PinningWorker("a"), PinningWorker("b")
    async with serving(valkey) as gateway, working(gateway, a, b):
        a.pins = {PROMPT: 1.0}
        b.pins = {PROMPT: 1.0}
        async with AsyncClient(gateway.address) as client:
            assert sorted(await client.unpin(PROMPT)) == ["a", "b"]
            with pytest.raises(errors.NotFound, match=r"worker 'a' at .*: no such pin; worker 'b'"):
                await client.unpin(PROMPT)


async def test_a_chat_can_be_pinned_by_a_thread_too(valkey: Valkey) -> None:
    a = PinningWorker("a")
    async with serving(valkey) as gateway, working(gateway, a):
        messages = [{"role": "user", "content": "1 2 3"}]

        def pin_and_unpin() -> tuple[Pinned, list[str]]:
            with Client(gateway.address) as client:
                pinned = client.pin(messages=messages, ttl=5, tenant="t")
                return pinned, client.unpin(messages=messages, tenant="t")

        pinned, workers = await asyncio.to_thread(pin_and_unpin)
        assert (pinned.worker, workers) == ("a", ["a"])
        assert pinned.prompt_tokens > 3


@pytest.mark.parametrize("ttl", [0.0, -1.0, float("inf")])
async def test_what_is_wrong_is_named(valkey: Valkey, ttl: float) -> None:
    async with serving(valkey) as gateway, working(gateway, PinningWorker("a")):
        async with AsyncClient(gateway.address) as client:
            with pytest.raises(errors.InvalidRequest, match="ttl_seconds"):
                await client.pin(pack_tokens([1]), ttl=ttl)
        for call in (
            gateway.gateway.Pin(PinRequest(ttl_seconds=1)),
            gateway.gateway.Unpin(UnpinRequest()),
        ):
            with pytest.raises(grpc.aio.AioRpcError, match="request: missing"):
                await call
