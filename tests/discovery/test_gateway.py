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
from tests.kube.errors import ApiError as KubeError
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
        # NOTE: who answers would have a minute to finish.
        async with asyncio.timeout(30):
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
    """For six periods, so, with those of ten seconds, for a minute."""
    await cluster.server.stop()
    cluster.put("s", [b.pod])
    await asyncio.sleep(6 * PERIOD)
    await cluster.server.start()


async def without_address(cluster: SliceCluster, a: Member, b: Member) -> None:
    cluster.put("s", [a.pod._replace(address=""), b.pod])


async def replaced_elsewhere(cluster: SliceCluster, a: Member, b: Member) -> None:
    cluster.put("s", [Pod("another", "a", "127.0.0.99", ready=False), b.pod])


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
        # NOTE: until the next report, what ended at `b` since the last one speaks for it.
        await until(lambda: _both_serve(here))


async def _both_serve(here: Town) -> bool:
    return await here.send() == {"a", "b"}


async def _load(here: Town) -> None:
    """Requests, one after the other; each must be answered."""
    while True:
        await here.send(1)
        await asyncio.sleep(0.01)


async def test_a_pod_is_replaced_under_its_name_and_at_its_address(
    cluster: SliceCluster,
    valkey: Valkey,  # noqa: F811
) -> None:
    async with town(cluster, valkey) as here:
        old, b = await here.enter("a", "127.0.0.11"), await here.enter("b", "127.0.0.12")
        cluster.put("s", [old.pod, b.pod])
        await here.is_listed("a", LISTING_READY)
        await here.is_listed("b", LISTING_READY)
        loading = asyncio.create_task(_load(here))
        await old.worker.stop()
        cluster.put("s", [b.pod])
        new = old.pod._replace(uid="another", ready=False)
        cluster.put("s", [new, b.pod])
        young = await here.enter("a", "127.0.0.11")
        cluster.put("s", [new._replace(ready=True), b.pod])
        await here.is_listed("a", LISTING_READY)
        await until(lambda: _live(here, "a", "b"))
        last = len(old.asked)
        assert await here.send() == {"a", "b"}
        assert young.asked
        assert len(old.asked) == last
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        assert loading.cancelled(), "no request failed"


SLACK = 1.5
"""Seconds more than a period that a busy machine may take to let all of this have its turn."""


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))]
)
async def test_whatever_happens_the_pods_that_there_are_serve(
    cluster: SliceCluster,
    valkey: Valkey,  # noqa: F811
    seed: int,
) -> None:
    """Pods come, go and move between slices while watches break and the API server restarts.

    No request fails, none reaches a pod a period after it went, and none that is there is left out
    for longer than that. While the API server is away the period has not begun.
    """
    chance = random.Random(seed)
    async with town(cluster, valkey) as here:
        storm = Storm(here, chance)
        for _ in range(3):
            await storm.add()
        await until(lambda: _live(here, *(each.pod.name for each in storm.present)))
        tasks = [asyncio.create_task(_load(here)), asyncio.create_task(storm.watch())]
        for _ in range(30):
            await chance.choice(storm.doings)()
            await asyncio.sleep(chance.random() / 2)
        await storm.everyone_serves()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert all(task.cancelled() for task in tasks), tasks
        for member, went in storm.gone.items():
            known = went if went > storm.back_at else storm.back_at
            late = [at - went for at in here.members[member].asked if at > known + PERIOD + SLACK]
            assert not late, f"{member} was sent requests so long after it went"


class Storm:
    """What happens, and what has to be true all the time."""

    def __init__(self, here: Town, chance: random.Random) -> None:
        self.here = here
        self.chance = chance
        self.slices: dict[str, list[Pod]] = {"s": [], "t": []}
        self.gone: dict[int, float] = {}
        self.back_at = 0.0
        self.doings: list[Callable[[], Awaitable[None]]] = [
            self.add, self.remove, self.replace, self.move, self.move, self.drop, self.drop,
            self.expire, self.freeze, self.restart,
        ]  # fmt: skip

    @property
    def present(self) -> list[Member]:
        return [each for at, each in enumerate(self.here.members) if at not in self.gone]

    async def add(self) -> None:
        if len(self.present) < 5:
            at = len(self.here.members)
            member = await self.here.enter(f"pod-{at}", f"127.0.1.{at + 1}")
            self._put(self.chance.choice("st"), [member.pod], [])

    async def remove(self) -> None:
        """The worker goes on as if nothing had happened; its pod was listed, as far as is known."""
        member = self.chance.choice(self.present)
        info = await self.here.info(member.pod.name)
        if len(self.present) > 2 and info is not None and info.listing == LISTING_READY:
            self._remove(member)

    async def replace(self) -> None:
        """The same name and the same address, another UID."""
        if len(self.present) > 2:
            old = self.chance.choice(self.present)
            await old.worker.stop()
            self._remove(old)
            new = await self.here.enter(old.pod.name, old.pod.address)
            new.pod = new.pod._replace(uid=f"{old.pod.uid}, again")
            self._put(self.chance.choice("st"), [new.pod], [])

    async def move(self) -> None:
        member = self.chance.choice(self.present)
        source, target = ("s", "t") if member.pod in self.slices["s"] else ("t", "s")
        if self.chance.random() < 0.5:
            self._put(target, [member.pod], [])
            self._put(source, [], [member.pod])
        else:
            self._put(source, [], [member.pod])
            self._put(target, [member.pod], [])

    async def drop(self) -> None:
        self.here.cluster.server.drop_next(self.chance.choice(["ADDED", "MODIFIED", "DELETED"]))

    async def expire(self) -> None:
        self.here.cluster.server.expire()

    async def freeze(self) -> None:
        self.here.cluster.server.freeze()

    async def restart(self) -> None:
        await self.here.cluster.server.stop()
        await self.remove()
        await asyncio.sleep(self.chance.random() * PERIOD)
        await self.here.cluster.server.start()
        self.back_at = time.monotonic()

    async def watch(self) -> None:
        """Nobody that is there is left out for long."""
        left_out: dict[str, float] = {}
        while True:
            now = time.monotonic()
            answer = await self.here.client.gateway.ListWorkers(ListWorkersRequest())
            gone = {one.worker for one in answer.workers if one.listing == LISTING_GONE}
            missing = {each.pod.name for each in self.present} & gone
            left_out = {name: left_out.get(name, now) for name in missing}
            for name, since in left_out.items():
                known = max(since, self.back_at)
                assert now < known + PERIOD + SLACK, f"{name} is there and was forgotten"
            await asyncio.sleep(0.05)

    async def everyone_serves(self) -> None:
        names = {each.pod.name for each in self.present}
        answered: set[str] = set()

        async def so() -> bool:
            nonlocal answered
            answered = await self.here.send(20)
            return answered == names

        try:
            await until(so)
        except TimeoutError as error:
            raise AssertionError(f"{names} are there, {answered} answered") from error

    def _remove(self, member: Member) -> None:
        self.gone[self.here.members.index(member)] = time.monotonic()
        for name, pods in self.slices.items():
            if member.pod in pods:
                self._put(name, [], [member.pod])

    def _put(self, name: str, more: list[Pod], less: list[Pod]) -> None:
        self.slices[name] = [pod for pod in self.slices[name] + more if pod not in less]
        if self.slices[name] or self.chance.random() < 0.5:
            self.here.cluster.put(name, self.slices[name])
        else:
            with suppress(KubeError):
                self.here.cluster.drop(name)
