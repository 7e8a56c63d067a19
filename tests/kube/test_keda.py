"""ScaledObjects: KEDA's calls to an external scaler become replicas, on a clock that runs fast."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from externalscaler import externalscaler_pb2 as messages
from externalscaler.externalscaler_pb2_grpc import (
    ExternalScalerServicer,
    add_ExternalScalerServicer_to_server,
)

from tests.kube import kinds
from tests.kube.cluster import Cluster
from tests.kube.store import Obj

pytestmark = pytest.mark.slow

SPEED = 100.0


class Scaler(ExternalScalerServicer):
    """Says what the test sets; `asked` is what it was asked with."""

    def __init__(self) -> None:
        self.active, self.value, self.broken, self.failures = True, 2.0, False, 0
        self.asked: list[messages.GetMetricsRequest] = []

    async def IsActive(self, request: Any, context: Any) -> Any:
        return messages.IsActiveResponse(result=self.active)

    async def GetMetricSpec(self, request: Any, context: Any) -> Any:
        spec = messages.MetricSpec(metricName="desired", targetSizeFloat=1.0)
        return messages.GetMetricSpecResponse(metricSpecs=[spec])

    async def GetMetrics(self, request: Any, context: Any) -> Any:
        if self.broken:
            self.failures += 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "broken")
        self.asked.append(request)
        value = messages.MetricValue(metricName="desired", metricValueFloat=self.value)
        return messages.GetMetricsResponse(metricValues=[value])


@pytest.fixture
async def scaler() -> AsyncIterator[tuple[Scaler, str]]:
    server, scaler = grpc.aio.server(), Scaler()
    add_ExternalScalerServicer_to_server(scaler, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield scaler, f"127.0.0.1:{port}"
    await server.stop(None)


def start(cluster: Cluster, address: str, trigger: str = "external", **spec: Any) -> None:
    """A Deployment of sleepers, and the ScaledObject that scales it."""
    container = {"name": "c", "image": "none", "command": ["sleep", "1000"]}
    pod = {"containers": [container], "terminationGracePeriodSeconds": 0}
    template = {"metadata": {"labels": {"app": "x"}}, "spec": pod}
    deployment = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    cluster.store.create(kinds.DEPLOYMENT, {"metadata": {"name": "x"}, "spec": deployment})
    metadata = {"scalerAddress": address, "model": "m"}
    scaled = {
        "scaleTargetRef": {"name": "x"},
        "pollingInterval": 15,
        "cooldownPeriod": 60,
        "maxReplicaCount": 4,
        "triggers": [{"type": trigger, "metadata": metadata}],
        "advanced": {
            "horizontalPodAutoscalerConfig": {
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 30}}
            }
        },
    }
    cluster.store.create(kinds.SCALED_OBJECT, {"metadata": {"name": "x"}, "spec": scaled | spec})


def replicas(cluster: Cluster) -> int:
    found: Obj = cluster.store.get(kinds.DEPLOYMENT, "default", "x") or {}
    wanted: int = found["spec"]["replicas"]
    return wanted


async def scales(cluster: Cluster, to: int) -> None:
    await cluster.until(lambda: replicas(cluster) == to, 20, f"{to} replicas")


async def test_the_metric_scales_within_the_bounds(
    tmp_path: Path, scaler: tuple[Scaler, str]
) -> None:
    answers, address = scaler
    async with Cluster(tmp_path, speed=SPEED) as cluster:
        start(cluster, address, minReplicaCount=1)
        for value, wanted in [(2.0, 2), (9.0, 4), (2.5, 3), (0.0, 1)]:
            answers.value = value
            await scales(cluster, wanted)
        hpa = cluster.store.get(kinds.AUTOSCALER, "default", "keda-hpa-x")
        assert hpa
        assert hpa["spec"]["behavior"]["scaleDown"] == {"stabilizationWindowSeconds": 30}
        external = hpa["spec"]["metrics"][0]["external"]
        assert external["metric"]["name"] == "s0-desired"
        assert external["target"] == {"type": "AverageValue", "averageValue": "1000m"}
        (request,) = {str(one): one for one in answers.asked}.values()
        assert request.metricName == "desired"
        assert dict(request.scaledObjectRef.scalerMetadata)["model"] == "m"
        await cluster.kubectl("delete", "scaledobject", "x")
        assert not cluster.store.list(kinds.AUTOSCALER)


async def test_it_goes_to_none_after_the_cooldown_and_comes_back(
    tmp_path: Path, scaler: tuple[Scaler, str]
) -> None:
    answers, address = scaler
    answers.active, answers.value = False, 1.0
    async with Cluster(tmp_path, speed=SPEED) as cluster:
        before = cluster.clock.time()
        start(cluster, address, "external-push")
        await scales(cluster, 0)
        assert cluster.clock.time() - before > 60
        answers.active = True
        await scales(cluster, 1)


@pytest.mark.parametrize(
    ("behavior", "wanted"), [({}, 3), ({"behavior": "currentReplicasIfHigher"}, 4)]
)
async def test_a_scaler_that_fails_leads_to_the_fallback(
    tmp_path: Path, scaler: tuple[Scaler, str], behavior: dict[str, str], wanted: int
) -> None:
    answers, address = scaler
    answers.value = 4.0
    async with Cluster(tmp_path, speed=SPEED) as cluster:
        fallback = {"failureThreshold": 2, "replicas": 3} | behavior
        start(cluster, address, minReplicaCount=1, fallback=fallback)
        await scales(cluster, 4)
        answers.broken = True
        if wanted != 4:
            await scales(cluster, wanted)
            assert 3 <= answers.failures < 20
        else:
            await cluster.clock.sleep(120)
            assert replicas(cluster) == 4


async def test_metrics_of_a_source_of_the_test_scale_an_hpa(tmp_path: Path) -> None:
    async with Cluster(tmp_path, speed=SPEED) as cluster:
        start(cluster, "127.0.0.1:1")
        cluster.store.delete(kinds.SCALED_OBJECT, "default", "x")
        target = {"type": "Value", "value": "500m"}
        metric = {"type": "External", "external": {"metric": {"name": "load"}, "target": target}}
        reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}
        spec = {"scaleTargetRef": reference, "maxReplicas": 3, "metrics": [metric]}
        cluster.store.create(kinds.AUTOSCALER, {"metadata": {"name": "x"}, "spec": spec})

        async def load(namespace: str, metric: dict[str, Any]) -> float | None:
            return 1.0 if metric["name"] == "load" else None

        await cluster.clock.sleep(60)
        assert replicas(cluster) == 1  # nobody knows the metric yet
        cluster.sources.append(load)
        await scales(cluster, 3)
