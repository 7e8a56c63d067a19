"""Deletion costs on pods of an API server: only what changed, only on pods that are meant."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.fleet.discovery.cluster import Cluster
from gateway.fleet.discovery.discovered import Discovered
from gateway.fleet.discovery.endpoints import endpoints_of
from gateway.fleet.fleet import Fleet
from gateway.scale.cost_writer import CostWriter
from gateway.scale.deletion_cost import ANNOTATION
from gateway.summary.events import Loaded, Registered, Registration
from tests.discovery.cluster import ACCOUNT, NAMESPACE, SELECTOR, SliceCluster
from tests.discovery.slices import Pod, slice_of
from tests.kube import kinds
from tests.summary import values as reports
from tests.summary.valkey import eventually

pytestmark = pytest.mark.slow

MODEL = "m"


class Leading:
    """A leader as the test wants it."""

    leads = True


class Writing:
    """Pods in the store, workers in them, and what these are worth."""

    def __init__(self, cluster: SliceCluster) -> None:
        self.cluster = cluster
        self.leader = Leading()
        self.fleet = Fleet(1000.0, time.monotonic)
        self.discovered = Discovered(SELECTOR, time.monotonic)
        self.values: dict[str, float] = {}
        self.created = 0
        self.rounds = 0

    def create(self, name: str) -> Pod:
        """A pod, in the store only."""
        container = {"name": "worker", "image": "radixgate-worker"}
        pod = {
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"containers": [container]},
        }
        uid = self.cluster.store.create(kinds.POD, pod)["metadata"]["uid"]
        self.created += 1
        return Pod(uid, name, f"10.0.0.{self.created}")

    def list(self, *pods: Pod) -> None:
        """These are listed."""
        endpoints = endpoints_of(slice_of("s", pods))
        self.discovered.endpoints = {each.uid: each for each in endpoints}
        self.fleet.list_pods(self.discovered.endpoints)

    def work(self, pod: Pod, *, draining: bool = False) -> None:
        """A worker in the pod reports."""
        registration = Registration(pod.name, 1, f"{pod.address}:1", MODEL, "f", 16, 64, 1000)
        self.fleet.observe(MODEL, Registered(registration, 0))
        load = reports.load(0, [])
        load.draining = draining
        self.fleet.observe(MODEL, Loaded(pod.name, 1, load, True))

    def written(self, name: str) -> str | None:
        pod = self.cluster.store.get(kinds.POD, NAMESPACE, name)
        assert pod is not None
        found: str | None = pod["metadata"].get("annotations", {}).get(ANNOTATION)
        return found

    def values_of(self, model: str) -> Mapping[str, float]:
        assert model == MODEL
        self.rounds += 1
        return self.values

    async def another_round(self) -> None:
        begun = self.rounds
        await eventually(lambda: self.rounds >= begun + 2, "a round")

    def patches(self) -> int:
        return sum(each.startswith("PATCH") for each in self.cluster.server.requests)


@asynccontextmanager
async def writing(cluster: SliceCluster) -> AsyncIterator[Writing]:
    """Such pods, and a writer that has many rounds in a second."""
    here = Writing(cluster)
    leader: Any = here.leader
    writer = CostWriter(
        await Cluster.find(None),
        leader,
        here.fleet,
        discovered=here.discovered,
        values=here.values_of,
        seconds=0.02,
    )
    task = asyncio.create_task(writer.run())

    yield here
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_pods_are_written_when_their_cost_changes(cluster: SliceCluster) -> None:
    async with writing(cluster) as here:
        warm, cold, idle = here.create("warm"), here.create("cold"), here.create("idle")
        here.values = {"warm": 1000.0, "cold": 3.0}
        here.list(warm, cold, idle)
        here.work(warm)
        here.work(cold)
        await eventually(lambda: here.written("warm") == "20", "warm to be written")
        await eventually(lambda: here.written("cold") == "4", "cold to be written")
        await eventually(lambda: here.written("idle") == "0", "a pod without a worker as well")
        await here.another_round()
        patches = here.patches()
        assert patches == 3
        here.values = {"warm": 1050.0, "cold": 3.2}
        await here.another_round()
        assert here.patches() == patches, "nothing has changed that matters"
        here.values = {"warm": 4000.0, "cold": 3.2}
        await eventually(lambda: here.written("warm") == "24", "what changed to be written")
        here.work(warm, draining=True)
        await eventually(lambda: here.written("warm") == "-1", "who drains to go first")
        assert here.patches() == patches + 2


async def test_another_pod_of_the_name_is_left_alone(cluster: SliceCluster) -> None:
    async with writing(cluster) as here:
        old = here.create("w")
        cluster.store.delete(kinds.POD, NAMESPACE, "w", grace=0)
        other = here.create("w")
        assert other.uid != old.uid
        here.values = {"w": 1000.0}
        here.list(old)
        here.work(old)
        await eventually(lambda: here.patches() >= 2, "it to be tried, and again")
        assert here.written("w") is None
        here.list(other)
        await eventually(lambda: here.written("w") is not None, "the pod that is listed")


async def test_who_does_not_lead_writes_nothing(cluster: SliceCluster) -> None:
    async with writing(cluster) as here:
        here.leader.leads = False
        pod = here.create("w")
        here.values = {"w": 7.0}
        here.list(pod)
        here.work(pod)
        await asyncio.sleep(0.2)
        assert here.patches() == 0
        here.leader.leads = True
        await eventually(lambda: here.written("w") == "6", "the leader to write")
        cluster.store.replace(
            kinds.POD,
            cluster.store.get(kinds.POD, NAMESPACE, "w") | _annotated("w", "99"),  # type: ignore[operator]
        )
        here.leader.leads = False
        await asyncio.sleep(0.1)
        here.leader.leads = True
        await eventually(lambda: here.written("w") == "6", "what another wrote to be put right")


def _annotated(name: str, cost: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE, "annotations": {ANNOTATION: cost}}
    return {"metadata": metadata}


async def test_a_refusal_names_the_role(
    cluster: SliceCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.act_as(ACCOUNT)
    async with writing(cluster) as here:
        pod = here.create("w")
        here.list(pod)
        here.work(pod)
        await eventually(lambda: "needs a Role in namespace 'ns'" in caplog.text, "the advice")
        assert "patch on pods" in caplog.text
        await here.another_round()
        assert caplog.text.count("needs a Role") == 1, "it is said once"
        cluster.allow("costs", "", "pods", "patch")
        await eventually(lambda: here.written("w") == "0", "it to go on")


async def test_the_api_server_comes_back(cluster: SliceCluster) -> None:
    async with writing(cluster) as here:
        pod = here.create("w")
        await cluster.server.stop()
        here.list(pod)
        here.work(pod)
        await here.another_round()
        await cluster.server.start()
        await eventually(lambda: here.written("w") == "0", "it to go on")
