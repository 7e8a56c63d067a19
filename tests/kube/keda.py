"""A loop like KEDA's, for ScaledObjects of Deployments with one `external` trigger, or one
`external-push`, which is asked as often.

Faithful: the HPA that it makes (name, owner, bounds, behavior, metric s0-NAME of GetMetricSpec),
the metric that it serves to the HPA's loop (GetMetrics; a float above 0 wins over the integer),
IsActive for none (or idleReplicaCount) and more, with the cooldown, fallback after failures.
Not here: ScaledObjects with more triggers or other ones, their status, StreamIsActive, and
fallbacks other than to a number or to what is there if that is more.
"""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import grpc
from externalscaler import externalscaler_pb2 as messages
from externalscaler.externalscaler_pb2_grpc import ExternalScalerStub

from tests.kube import kinds
from tests.kube.autoscale import scale, scale_target
from tests.kube.clock import Clock
from tests.kube.containers import MissingError, with_services
from tests.kube.objects import child_of
from tests.kube.store import Obj, Store, key_of

CALL_SECONDS: Final = 3.0
LABEL: Final = "scaledobject.keda.sh/name"
POLLED: Final = (["external"], ["external-push"])
FAILURES: Final = (grpc.aio.AioRpcError, MissingError)


class KedaLoop:
    """Turns the ScaledObjects of a store into HPAs, and serves their metrics (`read`)."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._failures: Counter[str] = Counter()
        self._active: dict[str, float] = {}
        self._sizes: dict[str, float] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            periods = []
            for scaled in self._store.list(kinds.SCALED_OBJECT):
                if [trigger["type"] for trigger in scaled["spec"]["triggers"]] in POLLED:
                    periods.append(scaled["spec"].get("pollingInterval", 30))
                    await self._poll(scaled)
            await self._clock.sleep(min(periods, default=1))

    async def read(self, namespace: str, metric: dict[str, Any]) -> float | None:
        """A `Source` for the loop of the HPA."""
        name = metric.get("selector", {}).get("matchLabels", {}).get(LABEL, "")
        if (scaled := self._store.get(kinds.SCALED_OBJECT, namespace, name)) is None:
            return None
        uid, fallback = scaled["metadata"]["uid"], scaled["spec"].get("fallback")
        try:
            async with _scaler(self._store, scaled) as (stub, reference):
                request = messages.GetMetricsRequest(
                    scaledObjectRef=reference, metricName=metric["name"].removeprefix("s0-")
                )
                answer = await stub.GetMetrics(request, timeout=CALL_SECONDS)
        except FAILURES:
            self._failures[uid] += 1
            if not fallback or self._failures[uid] <= fallback["failureThreshold"]:
                return None
            target = scale_target(self._store, scaled)
            stays = target and fallback.get("behavior") == "currentReplicasIfHigher"
            replicas = max(fallback["replicas"], target["spec"]["replicas"] if stays else 0)
            return replicas * self._sizes[uid]  # what an AverageValue needs to ask for them
        self._failures[uid] = 0
        return sum(
            value.metricValueFloat if value.metricValueFloat > 0 else value.metricValue
            for value in answer.metricValues
        )

    async def _poll(self, scaled: Obj) -> None:
        with suppress(*FAILURES):
            async with _scaler(self._store, scaled) as (stub, reference):
                answer = await stub.GetMetricSpec(reference, timeout=CALL_SECONDS)
                active = (await stub.IsActive(reference, timeout=CALL_SECONDS)).result
            if self._store.get(kinds.SCALED_OBJECT, *key_of(scaled)):
                self._make(scaled, answer.metricSpecs[0])
                self._activate(scaled, active)

    def _make(self, scaled: Obj, asked: messages.MetricSpec) -> None:
        """The HPA as the ScaledObject is now."""
        spec, name = scaled["spec"], scaled["metadata"]["name"]
        size = asked.targetSizeFloat if asked.targetSizeFloat > 0 else asked.targetSize
        self._sizes[scaled["metadata"]["uid"]] = size
        selector = {"matchLabels": {LABEL: name}}
        external = {
            "metric": {"name": f"s0-{asked.metricName}", "selector": selector},
            "target": {"type": "AverageValue", "averageValue": f"{round(size * 1000)}m"},
        }
        wanted = {
            "scaleTargetRef": spec["scaleTargetRef"],
            "minReplicas": spec.get("minReplicaCount", 0) or 1,
            "maxReplicas": spec.get("maxReplicaCount", 100),
            "metrics": [{"type": "External", "external": external}],
            "behavior": spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"],
        }
        metadata = child_of(kinds.SCALED_OBJECT, scaled, f"keda-hpa-{name}")
        hpa = {"metadata": metadata, "spec": wanted}
        self._store.apply(kinds.AUTOSCALER, hpa, manager="keda", force=True)

    def _activate(self, scaled: Obj, active: bool) -> None:
        """Between no replicas and some; the HPA does the rest."""
        if (target := scale_target(self._store, scaled)) is None:
            return
        spec, now, uid = scaled["spec"], self._clock.time(), scaled["metadata"]["uid"]
        replicas, least = target["spec"]["replicas"], spec.get("minReplicaCount", 0)
        unused = now - self._active.setdefault(uid, now) > spec.get("cooldownPeriod", 300)
        if active:
            self._active[uid] = now
            scale(self._store, target, max(replicas, least, 1))
        elif unused and (least == 0 or "idleReplicaCount" in spec):
            scale(self._store, target, min(replicas, spec.get("idleReplicaCount", 0)))


@asynccontextmanager
async def _scaler(
    store: Store, scaled: Obj
) -> AsyncIterator[tuple[ExternalScalerStub, messages.ScaledObjectRef]]:
    """The scaler of the trigger, and how it is asked."""
    (trigger,) = scaled["spec"]["triggers"]
    namespace, name = key_of(scaled)
    reference = messages.ScaledObjectRef(
        name=name, namespace=namespace, scalerMetadata=trigger["metadata"]
    )
    address = with_services(store, trigger["metadata"]["scalerAddress"])
    async with grpc.aio.insecure_channel(address) as channel:
        yield ExternalScalerStub(channel), reference
