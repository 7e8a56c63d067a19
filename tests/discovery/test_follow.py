"""Slices are followed through every way in which a list or a watch can fail."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fleet.discovery import kubernetes
from gateway.fleet.discovery.cluster import Cluster
from gateway.fleet.discovery.discovered import Discovered, Relist
from gateway.fleet.discovery.endpoints import Endpoint
from gateway.fleet.discovery.kubernetes import Discovery, Timing
from tests.discovery.cluster import ACCOUNT, SELECTOR, SliceCluster
from tests.discovery.slices import Pod
from tests.kube import kinds
from tests.summary.valkey import eventually

PERIOD = 3.0
A, B, C = (Pod(f"uid-{name}", name, f"127.0.0.{at}") for at, name in enumerate("abc", 1))


class Following:
    """What is followed, and everything that was ever told."""

    def __init__(self, cluster: SliceCluster, found: Discovered) -> None:
        self.cluster = cluster
        self.found = found
        self.told: list[set[str]] = []

    def listed(self, endpoints: Mapping[str, Endpoint]) -> None:
        self.told.append({pod.name for pod in endpoints.values()})

    @property
    def pods(self) -> set[str]:
        return {pod.name for pod in self.found.endpoints.values()}

    async def see(self, *names: str) -> None:
        await eventually(lambda: self.pods == set(names), f"{names}, there are {self.pods}", 20)

    async def relist(self, why: Relist) -> None:
        before = self.found.relists[why]
        await eventually(lambda: self.found.relists[why] > before, f"a relist for {why}", 20)

    @property
    def lists(self) -> int:
        return self.found.relists.total()

    async def watching(self) -> None:
        """Until a watch is open that was not before."""
        asked = self.asked("watch=true")
        await eventually(lambda: self.asked("watch=true") > asked, "another watch", 20)
        # NOTE: a watch that is only asked for holds nothing back yet.
        await eventually(lambda: bool(self.cluster.server._watches), "it to be open", 20)

    def asked(self, what: str) -> int:
        return sum(what in request.lower() for request in self.cluster.server.requests)


@asynccontextmanager
async def following(cluster: SliceCluster, period: float = PERIOD) -> AsyncIterator[Following]:
    following = Following(cluster, Discovered(SELECTOR, time.monotonic))
    discovery = Discovery(
        await Cluster.find(None),
        following.found,
        period,
        following.listed,
        clock=time.monotonic,
        chance=random.random,
    )
    task = asyncio.create_task(discovery.run())
    yield following
    assert not task.done(), "it goes on whatever happens"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@given(st.floats(3, 60), st.floats(0, 1, exclude_max=True))
def test_what_is_lost_is_found_within_a_period(period: float, chance: float) -> None:
    timing = Timing.within(period)
    watch = timing.watch_seconds(chance)
    assert watch >= 1
    assert watch + timing.spare + timing.answer + timing.settle < period


@pytest.mark.slow
async def test_changes_are_seen_by_the_watch(cluster: SliceCluster) -> None:
    cluster.put("s", [A])
    cluster.put("other", [C], labels={"app.kubernetes.io/component": "redis"})
    async with following(cluster, period=600.0) as found:
        await found.see("a")
        cluster.put("s", [A, B])
        await found.see("a", "b")
        cluster.put("t", [C])
        await found.see("a", "b", "c")
        cluster.drop("t")
        cluster.put("s", [B._replace(terminating=True)])
        await eventually(lambda: found.found.endpoints[B.uid].terminating, "b to terminate")
        assert found.lists == 1
        assert not found.found.problem


@pytest.mark.slow
async def test_slices_come_in_pages(cluster: SliceCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "PAGE", 2)
    for at in range(5):
        cluster.put(f"s{at}", [Pod(f"u{at}", f"p{at}", f"127.0.0.{at}")])
    async with following(cluster) as found:
        await found.see(*(f"p{at}" for at in range(5)))
        assert found.asked("continue=") >= 2
        assert found.told[0] == {f"p{at}" for at in range(5)}, "never a part of them"


@pytest.mark.slow
@pytest.mark.parametrize("event", ["DELETED", "MODIFIED", "ADDED"])
async def test_a_lost_event_is_made_up_for(cluster: SliceCluster, event: str) -> None:
    cluster.put("s", [A, B])
    cluster.put("t", [C])
    async with following(cluster) as found:
        await found.see("a", "b", "c")
        await found.watching()
        cluster.server.drop_next(event)
        before = found.lists
        if event == "DELETED":
            cluster.drop("t")
            await found.see("a", "b")
        elif event == "MODIFIED":
            cluster.put("s", [A])
            await found.see("a", "c")
        else:
            cluster.put("u", [Pod("uid-d", "d", "127.0.0.4")])
            await found.see("a", "b", "c", "d")
        assert found.lists > before, "the watch has told it, so nothing was lost"


@pytest.mark.slow
async def test_an_expired_version_is_followed_by_a_list(cluster: SliceCluster) -> None:
    cluster.put("s", [A])
    async with following(cluster) as found:
        await found.see("a")
        await found.watching()
        expired = asyncio.create_task(found.relist(Relist.EXPIRED))
        await asyncio.sleep(0)
        cluster.drop("s")
        cluster.put("t", [B])
        cluster.server.expire()
        await expired
        await found.see("b")
        assert all(found.told), "the last pods stay until there are others"


@pytest.mark.slow
async def test_a_watch_that_is_half_open_does_not_hang(cluster: SliceCluster) -> None:
    cluster.put("s", [A])
    async with following(cluster) as found:
        await found.see("a")
        await found.watching()
        silent = asyncio.create_task(found.relist(Relist.SILENT))
        await asyncio.sleep(0)
        cluster.server.freeze()
        cluster.put("s", [B])
        await silent
        await found.see("b")


@pytest.mark.slow
async def test_the_last_pods_stay_while_the_api_server_is_away(cluster: SliceCluster) -> None:
    cluster.put("s", [A])
    async with following(cluster) as found:
        await found.see("a")
        await cluster.server.stop()
        cluster.put("s", [B])
        await eventually(lambda: found.found.relists[Relist.FAILED] >= 3, "it to try again", 20)
        assert found.pods == {"a"}
        assert "cannot list EndpointSlices" in found.found.problem
        assert found.found.age() > 0
        await cluster.server.start()
        await found.see("b")
        await eventually(lambda: not found.found.problem, "all to be well")


@pytest.mark.slow
@pytest.mark.parametrize("status", [500, 503, 504, 410, 429])
async def test_an_error_is_no_empty_list(cluster: SliceCluster, status: int) -> None:
    cluster.put("s", [A])
    async with following(cluster) as found:
        await found.see("a")
        await found.watching()
        cluster.server.fail(status)
        await eventually(lambda: str(status) in found.found.problem, "it to be told", 20)
        assert found.pods == {"a"}
        cluster.put("s", [B])
        cluster.server.fail(0)
        await found.see("b")
        assert all(found.told)


@pytest.mark.slow
async def test_a_refusal_names_the_role_that_is_missing(cluster: SliceCluster) -> None:
    cluster.act_as(ACCOUNT)
    cluster.put("s", [A])
    async with following(cluster) as found:
        await eventually(lambda: "403" in found.found.problem, "to be refused")
        for word in ("Role", "'ns'", "list, watch", "endpointslices.discovery.k8s.io"):
            assert word in found.found.problem
        await found.relist(Relist.REFUSED)
        cluster.allow("lists", kinds.ENDPOINT_SLICE.group, "endpointslices", "list")
        await found.see("a")
        await eventually(lambda: "cannot watch" in found.found.problem, "it to miss the watch")
        cluster.put("s", [B])
        await found.see("b")
        cluster.allow("watches", kinds.ENDPOINT_SLICE.group, "endpointslices", "watch")
        await eventually(lambda: not found.found.problem, "all to be well", 20)


@pytest.mark.slow
async def test_a_pod_between_two_slices_is_not_gone(cluster: SliceCluster) -> None:
    cluster.put("s", [A, B])
    async with following(cluster) as found:
        await found.see("a", "b")
        for _ in range(20):
            cluster.put("s", [A])
            await asyncio.sleep(0.005)
            cluster.put("t", [B])
            await asyncio.sleep(0.005)
            cluster.drop("t")
            await asyncio.sleep(0.005)
            cluster.put("s", [A, B])
        assert [told for told in found.told if told != {"a", "b"}] == []


@pytest.mark.slow
async def test_a_version_is_handed_on_and_never_read(cluster: SliceCluster) -> None:
    """Each watch goes on from the list before it, and each list is as new as can be."""
    cluster.put("s", [A])
    async with following(cluster) as found:
        await found.relist(Relist.PERIOD)
        await found.relist(Relist.PERIOD)
    queries = [parse_qs(urlsplit(each.split()[1]).query) for each in cluster.server.requests]
    assert [("watch" in query) for query in queries[:4]] == [False, True, False, True]
    for query in queries:
        assert ("resourceVersion" in query) == ("watch" in query)
        assert query["labelSelector"] == [SELECTOR]
        if "watch" in query:
            assert query["allowWatchBookmarks"] == ["true"]
            assert 1 <= int(query["timeoutSeconds"][0]) < PERIOD
