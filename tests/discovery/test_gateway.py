"""A whole gateway, workers at addresses of their own, and an API server in which all goes wrong.

A worker here is a real server that reports to the gateway, whether its pod is listed or not, so
what keeps requests from it is discovery and nothing else.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1.health_pb2_grpc import HealthServicer, add_HealthServicer_to_server
from radixgate.prefix import pack_tokens
from radixgate.v1.gateway_pb2 import (
    LISTING_GONE,
    LISTING_NOT_READY,
    LISTING_READY,
    LISTING_TERMINATING,
    LISTING_UNLISTED,
    LISTING_UNSPECIFIED,
    Listing,
    ListWorkersRequest,
    WorkerInfo,
)
from radixgate.v1.generate_pb2 import GenerateRequest

from tests.discovery.cluster import SELECTOR, SliceCluster
from tests.discovery.slices import Pod
from tests.gateway.conftest import valkey  # noqa: F401
from tests.gateway.doubles import ScriptedWorker, make_card
from tests.gateway.harness import Client, events, serving, until
from tests.summary.valkey import Valkey

pytestmark = pytest.mark.slow

PERIOD = 3.0


@dataclass
class Member:
    """A pod, the worker in it, and when that was sent requests."""

    pod: Pod
    worker: ScriptedWorker
    asked: list[float] = field(default_factory=list)


class Silence(HealthServicer):
    async def Check(self, request, context):  # type: ignore[no-untyped-def]
        await asyncio.Event().wait()


class HungWorker(ScriptedWorker):
    def add_to(self, server: grpc.aio.Server) -> None:
        super().add_to(server)
        add_HealthServicer_to_server(Silence(), server)


class Town:
    """A gateway that discovers, and members that come and go."""

    def __init__(self, cluster: SliceCluster, client: Client, stack: AsyncExitStack) -> None:
        self.cluster = cluster
        self.client = client
        self.members: list[Member] = []
        self._stack = stack

    async def enter(self, name: str, host: str, *, hung: bool = False) -> Member:
        """A worker that reports to the gateway, and its pod, listed nowhere yet.

        One that is `hung` does not answer what asks whether it is alive.
        """
        worker = (HungWorker if hung else ScriptedWorker)(name, make_card(), host=host)
        member = Member(Pod(f"uid of {name} at {host}", name, host), worker)
        script = worker.script

        def noting(request: GenerateRequest, of: ScriptedWorker) -> Any:
            member.asked.append(time.monotonic())
            return script(request, of)

        worker.script = noting
        await self._stack.enter_async_context(worker.running(self.client.address))
        self.members.append(member)
        return member

    async def info(self, name: str) -> WorkerInfo | None:
        answer = await self.client.gateway.ListWorkers(ListWorkersRequest())
        return next((one for one in answer.workers if name in (one.worker, one.pod)), None)

    async def is_listed(self, name: str, listing: Listing.ValueType) -> None:
        async def so() -> bool:
            info = await self.info(name)
            return info is not None and info.listing == listing

        await until(so)

    async def send(self, requests: int = 12) -> set[str]:
        """Different prompts, and who answered them."""
        answered = set()
        for _ in range(requests):
            prompt = pack_tokens(random.choices(range(5, 900), k=128))
            responses = await self.client.generate(GenerateRequest(packed=prompt))
            assert events(responses)[-1] == "finished"
            answered.add(responses[0].started.worker)
        return answered


@asynccontextmanager
async def town(cluster: SliceCluster, valkey: Valkey) -> AsyncIterator[Town]:  # noqa: F811
    async with (
        serving(valkey, discover=SELECTOR, discovery_seconds=PERIOD) as client,
        AsyncExitStack() as stack,
    ):
        yield Town(cluster, client, stack)


async def test_what_is_listed_of_workers_is_shown(cluster: SliceCluster, valkey: Valkey) -> None:  # noqa: F811
    async with town(cluster, valkey) as here:
        a = await here.enter("a", "127.0.0.11")
        b = await here.enter("b", "127.0.0.12")
        await here.enter("outside", "127.0.0.13")
        silent = Pod("uid-s", "silent", "127.0.0.14", ready=False)
        without = Pod("uid-w", "without", "")
        cluster.put("s", [a.pod, b.pod._replace(ready=False), silent])
        cluster.put("t", [without])
        await here.is_listed("a", LISTING_READY)
        await here.is_listed("b", LISTING_NOT_READY)
        await here.is_listed("outside", LISTING_UNLISTED)
        await here.is_listed("silent", LISTING_NOT_READY)
        await here.is_listed("without", LISTING_READY)
        answer = await here.client.gateway.ListWorkers(ListWorkersRequest())
        assert answer.discovery.selector == SELECTOR
        assert not answer.discovery.problem
        mute = {one.pod: one for one in answer.workers if not one.epoch}
        assert set(mute) == {"silent", "without"}
        assert "no worker there has reported" in mute["silent"].trust_reason
        assert "no address" in mute["without"].trust_reason
        assert mute["silent"].address == "127.0.0.14"
        assert len(answer.workers) == 5
        named = await here.client.gateway.ListWorkers(ListWorkersRequest(model="words"))
        assert {one.worker for one in named.workers} == {"a", "b", "outside"}

        async def all_serve() -> bool:
            return await here.send() == {"a", "b", "outside"}

        await until(all_serve)


async def test_without_discovery_nothing_is_said(valkey: Valkey) -> None:  # noqa: F811
    worker = ScriptedWorker("a", make_card())
    async with serving(valkey) as client, worker.running(client.address):
        await until(lambda: _serves(client))
        (info,) = await client.workers()
        assert (info.listing, info.pod) == (LISTING_UNSPECIFIED, "")
        answer = await client.gateway.ListWorkers(ListWorkersRequest())
        assert not answer.HasField("discovery")


async def _serves(client: Client) -> bool:
    with suppress(grpc.aio.AioRpcError):
        return bool(await client.generate())
    return False


async def test_a_terminating_pod_finishes_and_takes_nothing_new(
    cluster: SliceCluster,
    valkey: Valkey,  # noqa: F811
) -> None:
    async with town(cluster, valkey) as here:
        a = await here.enter("a", "127.0.0.11")
        go_on = asyncio.Event()
        quick = a.worker.script

        async def slow(request: GenerateRequest, worker: ScriptedWorker) -> AsyncIterator[Any]:
            async for response in quick(request, worker):
                yield response
                if response.WhichOneof("event") == "started":
                    await go_on.wait()

        a.worker.script = slow
        cluster.put("s", [a.pod])
        await here.is_listed("a", LISTING_READY)
        running = asyncio.create_task(here.client.generate())
        await until(lambda: _is(lambda: bool(a.asked)))
        b = await here.enter("b", "127.0.0.12")
        cluster.put("s", [a.pod._replace(terminating=True), b.pod])
        await here.is_listed("a", LISTING_TERMINATING)
        await here.is_listed("b", LISTING_READY)
        await until(lambda: _live(here, "b"))
        assert await here.send() == {"b"}
        go_on.set()
        responses = await running
        assert responses[0].started.worker == "a"
        assert events(responses)[-1] == "finished"
        assert responses[-1].finished.migrations == 0


async def _is(condition: Callable[[], bool]) -> bool:
    return condition()


async def _live(here: Town, *names: str) -> bool:
    infos = [await here.info(name) for name in names]
    return all(info is not None and info.trust_reason == "in sync" for info in infos)


async def test_calls_of_a_pod_that_is_gone_and_silent_go_on_elsewhere(
    cluster: SliceCluster,
    valkey: Valkey,  # noqa: F811
) -> None:
    """Its port is open and its reports come, but it answers nothing: only the list tells."""
    async with town(cluster, valkey) as here:
        a = await here.enter("a", "127.0.0.11", hung=True)
        quick = a.worker.script

        async def hangs(request: GenerateRequest, worker: ScriptedWorker) -> AsyncIterator[Any]:
            async for response in quick(request, worker):
                yield response
                await asyncio.Event().wait()

        a.worker.script = hangs
        cluster.put("s", [a.pod])
        await here.is_listed("a", LISTING_READY)
        running = asyncio.create_task(here.client.generate())
        await until(lambda: _is(lambda: bool(a.asked)))
        b = await here.enter("b", "127.0.0.12")
        cluster.put("s", [b.pod])
        responses = await running
        assert events(responses)[-1] == "finished"
        assert b.asked


async def relabelled(cluster: SliceCluster, a: Member, b: Member) -> None:
    cluster.put("s", [b.pod])


async def deleted_unseen(cluster: SliceCluster, a: Member, b: Member) -> None:
    cluster.put("t", [b.pod])
    await asyncio.sleep(0.5)
    cluster.server.drop_next("DELETED")
    cluster.drop("s")


async def expired(cluster: SliceCluster, a: Member, b: Member) -> None:
    cluster.put("s", [b.pod])
    cluster.server.expire()


async def half_open(cluster: SliceCluster, a: Member, b: Member) -> None:
    cluster.server.freeze()
    cluster.put("s", [b.pod])


async def away(cluster: SliceCluster, a: Member, b: Member) -> None:
    """Twice as long as a period, which is to be 10 s, so that is 20 s of the real thing."""
    await cluster.server.stop()
    cluster.put("s", [b.pod])
    await asyncio.sleep(2 * PERIOD)
    await cluster.server.start()


async def without_address(cluster: SliceCluster, a: Member, b: Member) -> None:
    cluster.put("s", [a.pod._replace(address=""), b.pod])


async def replaced_elsewhere(cluster: SliceCluster, a: Member, b: Member) -> None:
    cluster.put("s", [Pod("another", "a", "127.0.0.99", ready=False), b.pod])


async def replaced_at_its_address(cluster: SliceCluster, a: Member, b: Member) -> None:
    cluster.put("s", [Pod("another", "a", "127.0.0.11", ready=False), b.pod])


FAULTS = [
    relabelled,
    deleted_unseen,
    expired,
    half_open,
    away,
    without_address,
    replaced_elsewhere,
]


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_pod_that_is_gone_is_sent_nothing_and_one_that_is_there_is_kept(
    cluster: SliceCluster,
    valkey: Valkey,  # noqa: F811
    fault: Callable[[SliceCluster, Member, Member], Awaitable[None]],
) -> None:
    async with town(cluster, valkey) as here:
        a, b = await here.enter("a", "127.0.0.11"), await here.enter("b", "127.0.0.12")
        cluster.put("s", [a.pod, b.pod])
        await here.is_listed("a", LISTING_READY)
        await here.is_listed("b", LISTING_READY)
        await until(lambda: _live(here, "a", "b"))
        assert await here.send() == {"a", "b"}

        loading = asyncio.create_task(_load(here))
        await fault(cluster, a, b)
        await here.is_listed("a", LISTING_GONE)
        await asyncio.sleep(0)
        before = len(a.asked)
        assert await here.send() == {"b"}
        assert len(a.asked) <= before + 1, "one may have been on its way"
        info = await here.info("b")
        assert info is not None
        assert info.listing == LISTING_READY

        cluster.put("s", [a.pod, b.pod])
        await here.is_listed("a", LISTING_READY)
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        assert loading.cancelled(), "no request failed"
        assert await here.send() == {"a", "b"}


async def _load(here: Town) -> None:
    """Requests, one after the other; each must be answered."""
    while True:
        await here.send(1)
        await asyncio.sleep(0.01)
