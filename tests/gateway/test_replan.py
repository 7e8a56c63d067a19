"""Hot prefixes of a worker that leaves, through a whole gateway: who computes them, and who not."""

import asyncio
import re
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import pytest
from grpc import StatusCode
from radixgate.prefix import pack_tokens
from radixgate.v1.generate_pb2 import GenerateRequest, Sampling, Scope, Stopping
from radixgate.v1.worker_pb2 import DrainRequest, HotPrefix, HottestRequest, Warmed, WarmPrompt
from radixgate.v1.worker_pb2_grpc import WorkerStub

from gateway.serve import replan
from tests.e2e.processes import free_port
from tests.gateway.doubles import STRIDE, ScriptedWorker, make_card
from tests.gateway.harness import Client, live, serving, until, working
from tests.summary.valkey import Valkey
from worker.main import WorkerConfig, worker

pytestmark = pytest.mark.slow


class Double(ScriptedWorker):
    """Tells `hot`, and warms what it is asked to, unless `refusal` says otherwise."""

    def __init__(self, name: str, *hot: HotPrefix) -> None:
        super().__init__(name, make_card())
        self.hot = hot
        self.asked = 0
        self.warmed: list[GenerateRequest] = []
        self.refusal: StatusCode | None = None
        self.then: Callable[[], Awaitable[None]] | None = None
        self.told: Callable[[], Awaitable[None]] | None = None
        self.free = asyncio.Event()
        self.free.set()

    async def Hottest(
        self, request: HottestRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[HotPrefix]:
        assert request.key == self.name.encode()
        self.asked += 1
        for prefix in self.hot:
            yield prefix
        if self.told:
            dying = asyncio.ensure_future(self.told())
            await asyncio.sleep(60)
            await dying

    async def Warm(self, request: WarmPrompt, context: grpc.aio.ServicerContext) -> Warmed:
        self.warmed.append(request.prompt)
        if self.then:
            await self.then()
        await self.free.wait()
        if self.refusal:
            await context.abort(self.refusal, "it may not")
        return Warmed(computed_tokens=len(request.prompt.packed) // 4)

    async def take_room(self) -> None:
        """Have less room than others, and see to it that this is reported."""
        self.load.free_blocks -= 40
        await asyncio.sleep(0.3)

    def leave(self) -> None:
        self.load.draining = True


def hot(
    first: int, hits: float = 5.0, tokens: int = 640, extends: int = 0, **scope: str
) -> HotPrefix:
    packed = pack_tokens([first + at % 100 for at in range(tokens)])
    return HotPrefix(scope=Scope(**scope), hits=hits, extends=extends, packed=packed)


def page(port: int) -> str:
    return urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()


@dataclass
class Counts:
    """What the gateway counts at a port."""

    port: int

    async def outcomes(self) -> dict[str, int]:
        text = await asyncio.to_thread(page, self.port)
        pattern = r'replanned_prefixes_total\{model=".*",outcome="(\w+)"\} (\S+)'
        return {outcome: int(float(count)) for outcome, count in re.findall(pattern, text)}

    async def tokens(self) -> int:
        text = await asyncio.to_thread(page, self.port)
        found = re.search(r"replanned_tokens_total\{.*\} (\S+)", text)
        return int(float(found[1])) if found else 0

    async def reach(self, **outcomes: int) -> None:
        try:
            await until(lambda: self.are(outcomes), 10)
        except TimeoutError:
            assert await self.outcomes() == outcomes

    async def are(self, outcomes: dict[str, int]) -> bool:
        return await self.outcomes() == outcomes


@pytest.fixture
def counts() -> Counts:
    return Counts(free_port())


async def test_what_pays_is_computed_elsewhere_hottest_first_and_in_its_scope(
    valkey: Valkey, counts: Counts
) -> None:
    a = Double(
        "a", hot(100, 9, tenant="t", salt="s"), hot(200, 4), hot(300, 0.1), hot(400, tokens=63)
    )
    b = Double("b")
    async with (
        serving(valkey, metrics_port=counts.port) as client,
        working(client, a, b),
    ):
        a.leave()
        await counts.reach(computed=2, declined=1)
        assert await counts.tokens() == 2 * 640
        assert [(each.packed, each.scope) for each in b.warmed] == [
            (a.hot[0].packed, Scope(tenant="t", salt="s")),
            (a.hot[1].packed, Scope()),
        ]
        assert (a.asked, a.warmed) == (1, [])


async def test_what_another_holds_already_is_not_sent(valkey: Valkey, counts: Counts) -> None:
    a, b, c = Double("a", hot(5), hot(5, tenant="t")), Double("b"), Double("c")
    async with (
        serving(valkey, metrics_port=counts.port) as client,
        working(client, a, b, c),
    ):
        c.store(a.hot[0].packed)

        async def reported() -> bool:
            return any(info.summary.count for info in await client.workers())

        await until(reported)
        a.leave()
        # The other tenant's has the same tokens, and is another prefix.
        await counts.reach(held=1, computed=1)
        (sent,) = b.warmed + c.warmed
        assert sent.scope.tenant == "t"


async def test_what_extends_a_prefix_goes_where_that_went_though_it_is_not_reported_yet(
    valkey: Valkey, counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replan, "LANES", 1)
    stranger, parent, child = hot(500, 7), hot(100, 9), hot(300, 5, STRIDE, extends=1)
    a = Double("a", parent, stranger, child)
    others = [Double(name) for name in ("b", "c", "d")]
    async with (
        serving(valkey, metrics_port=counts.port) as client,
        working(client, a, *others),
    ):
        for each in others:
            each.then = each.take_room
        a.leave()
        await counts.reach(computed=3)
        sent = [sorted(each.packed for each in other.warmed) for other in others]
        family = [parent.packed, parent.packed + child.packed]
        assert sorted(sent) == [[], family, [stranger.packed]]


async def test_one_that_leaves_too_gets_nothing(valkey: Valkey, counts: Counts) -> None:
    a, b, c = Double("a", hot(100), hot(200)), Double("b", hot(300)), Double("c")
    async with (
        serving(valkey, metrics_port=counts.port) as client,
        working(client, a, b, c),
    ):
        b.leave()
        await counts.reach(computed=1)
        a.leave()
        await counts.reach(computed=3)
        assert (len(a.warmed + c.warmed), b.warmed) == (3, [])
        c.hot = (hot(300), hot(100))
        c.leave()

        async def alone() -> bool:
            return all(info.load.draining for info in await client.workers())

        await until(alone)
        assert (await counts.outcomes(), c.asked) == ({"computed": 3}, 0)


@pytest.mark.parametrize("code", [StatusCode.UNAVAILABLE, StatusCode.RESOURCE_EXHAUSTED])
async def test_one_that_refuses_is_asked_once_and_then_left_alone(
    valkey: Valkey, counts: Counts, monkeypatch: pytest.MonkeyPatch, code: StatusCode
) -> None:
    monkeypatch.setattr(replan, "LANES", 1)
    a, b = Double("a", *(hot(first) for first in (100, 200, 300))), Double("b")
    b.refusal = code
    async with (
        serving(valkey, metrics_port=counts.port) as client,
        working(client, a, b),
    ):
        a.leave()
        await counts.reach(failed=3)
        assert len(b.warmed) == 1
        assert (await client.generate())[0].started.worker == "b"


async def test_one_that_dies_meanwhile_is_given_up(valkey: Valkey, counts: Counts) -> None:
    a, b = Double("a", hot(100)), Double("b")
    b.free.clear()
    stopping: list[asyncio.Task[None]] = []

    async def die() -> None:
        stopping.append(asyncio.ensure_future(b.stop()))

    b.then = die
    async with serving(valkey, metrics_port=counts.port) as client, working(client, a, b):
        a.leave()
        await counts.reach(failed=1)


async def test_a_worker_that_dies_while_it_tells_harms_nothing(
    valkey: Valkey, counts: Counts, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gateway")
    a, b = Double("a", hot(100)), Double("b")
    a.told = lambda: a.stop()  # noqa: PLW0108 (it has one when it runs)
    async with serving(valkey, metrics_port=counts.port) as client, working(client, a, b):
        a.leave()

        async def noticed() -> bool:
            return "worker a leaves, and does not tell what is hot" in caplog.text

        await until(noticed)
        assert (await client.generate())[0].started.worker == "b"
        assert (await counts.outcomes(), b.warmed) == ({}, [])


async def test_when_its_gateway_dies_too_the_next_one_takes_over(
    valkey: Valkey, counts: Counts
) -> None:
    a, b = Double("a", hot(100)), Double("b")
    b.free.clear()
    async with AsyncExitStack() as stack:
        second = await stack.enter_async_context(serving(valkey, metrics_port=counts.port))
        async with serving(valkey) as first:
            await stack.enter_async_context(a.running(first.address))
            await stack.enter_async_context(b.running(second.address))
            await until(lambda: live(second, a, b))
            await until(lambda: live(first, a, b))
            a.leave()

            async def begun() -> bool:
                return len(b.warmed) == 1

            await until(begun)
        reporting = asyncio.create_task(a.report_to(second.address))
        stack.callback(reporting.cancel)
        b.free.set()
        await counts.reach(computed=1)
        assert (a.asked, len(b.warmed)) == (2, 2)


async def test_there_is_no_more_time_than_this(
    valkey: Valkey, counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replan, "REPLAN_SECONDS", 0.3)
    a, b = Double("a", *(hot(100 + 100 * at) for at in range(7))), Double("b")
    b.free.clear()
    async with (
        serving(valkey, metrics_port=counts.port) as client,
        working(client, a, b),
    ):
        a.leave()
        await counts.reach(late=7)
        assert len(b.warmed) == replan.LANES


async def test_a_worker_that_does_not_know_of_this_leaves_as_ever(
    valkey: Valkey, counts: Counts, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    a, b = ScriptedWorker("a", make_card()), Double("b")
    async with (
        serving(valkey, metrics_port=counts.port) as client,
        working(client, a, b),
    ):
        a.load.draining = True

        async def told() -> bool:
            return "worker a leaves, and does not tell what is hot" in caplog.text

        await until(told)
        assert (await client.generate())[0].started.worker == "b"
        assert await counts.outcomes() == {}


async def test_tokens_are_not_logged(
    valkey: Valkey, counts: Counts, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gateway")
    a, b = Double("a", hot(100, tenant="secret"), hot(200, 0.1)), Double("b")
    async with (
        serving(valkey, metrics_port=counts.port) as client,
        working(client, a, b),
    ):
        a.leave()
        await counts.reach(computed=1, declined=1)

        async def told() -> bool:
            return "1 computed, 1 declined; 640 tokens were computed elsewhere" in caplog.text

        await until(told)
        assert "secret" not in caplog.text


# With real workers: what the clients get.


def prompt(token: int, tenant: str) -> GenerateRequest:
    return GenerateRequest(
        packed=pack_tokens([token] * 200),
        scope=Scope(tenant=tenant),
        sampling=Sampling(temperature=0),
        stopping=Stopping(max_tokens=1, ignore_eos=True),
    )


async def cached(client: Client, request: GenerateRequest) -> tuple[str, int]:
    """Who serves it, and how much of it was there."""
    started = (await client.generate(request))[0].started
    return started.worker, started.cached_tokens


async def ready(client: Client, count: int) -> None:
    """Wait until so many workers may be sent requests."""

    async def trusted() -> bool:
        workers = await client.workers()
        return len(workers) == count and all(info.trust == 1 for info in workers)

    await until(trusted)


async def test_hot_prefixes_are_cached_at_the_next_worker_each_for_its_tenant(
    valkey: Valkey, counts: Counts, tiny_llama: Path
) -> None:
    async with serving(valkey, metrics_port=counts.port) as client, AsyncExitStack() as stack:

        async def start(name: str) -> WorkerStub:
            config = WorkerConfig(
                tiny_llama,
                device="cpu",
                threads=1,
                kv_memory=2**22,
                worker_id=name,
                gateways=(client.address,),
            )
            running = await stack.enter_async_context(worker(config))
            channel = grpc.aio.insecure_channel(running.address)
            return WorkerStub(await stack.enter_async_context(channel))

        a = await start("a")
        await ready(client, 1)
        # (token, tenant): how often it is asked for.
        heat = {(5, "t"): 4, (6, "t"): 3, (6, "u"): 2, (7, "t"): 1, (8, "u"): 1}
        for (token, tenant), times in heat.items():
            for _ in range(times):
                assert (await cached(client, prompt(token, tenant)))[0] == "a"
        await start("b")
        await ready(client, 2)
        await a.Drain(DrainRequest(grace_seconds=30))
        await counts.reach(computed=3)
        assert await counts.tokens() == 3 * 192
        for (token, tenant), times in heat.items():
            expected = ("b", 192 if times > 1 else 0)
            assert await cached(client, prompt(token, tenant)) == expected
        assert await cached(client, prompt(5, "u")) == ("b", 0)
