"""The loop of the HorizontalPodAutoscaler: every 15 seconds, for each, what `hpa` decides.

External metrics come from sources that are given to it; what they do not know is missing.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from tests.kube import kinds
from tests.kube.clock import Clock
from tests.kube.hpa import Autoscaler, Reading, Replicas, proposal, quantity
from tests.kube.objects import holds, set_condition, status_of, timestamp, write_status
from tests.kube.store import Obj, Store

PERIOD_SECONDS: Final = 15.0

Source = Callable[[str, dict[str, Any]], Awaitable[float | None]]
"""The value of an External metric: of a namespace and the metric's `name` and `selector`."""


def scale_target(store: Store, obj: Obj) -> tuple[kinds.Kind, Obj] | None:
    """What an HPA or a ScaledObject scales, if it is there."""
    target = obj["spec"]["scaleTargetRef"]
    kind = kinds.BY_NAME[target.get("apiVersion", "apps/v1"), target.get("kind", "Deployment")]
    found = store.get(kind, obj["metadata"]["namespace"], target["name"])
    return (kind, found) if found else None


class AutoscalerLoop:
    """Scales the targets of all HPAs of a store; `sources` are asked in turn for each metric."""

    def __init__(self, store: Store, clock: Clock, sources: list[Source]) -> None:
        self._store, self._clock, self._sources = store, clock, sources
        self._memory: dict[str, Autoscaler] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            for scaler in self._store.list(kinds.AUTOSCALER):
                await self._scale(scaler)
            await self._clock.sleep(PERIOD_SECONDS)

    async def _scale(self, scaler: Obj) -> None:
        namespace, spec = scaler["metadata"]["namespace"], scaler["spec"]
        readings = [await self._read(namespace, metric) for metric in spec.get("metrics") or []]
        found = scale_target(self._store, scaler)
        if found is None:
            return
        kind, target = found
        labels = target["spec"]["selector"]["matchLabels"]
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        pods = self._store.list(kinds.POD, namespace, selector)
        wanted = target["spec"].get("replicas", 1)
        present = status_of(target).get("replicas", 0)
        replicas = Replicas(wanted, present, sum(holds(pod, "Ready") for pod in pods))
        asked = proposal(readings, replicas)
        memory = self._memory.setdefault(scaler["metadata"]["uid"], Autoscaler())
        desired = memory.decide(spec, self._clock.time(), wanted, asked)
        scaler["status"] = status_of(scaler) | {
            "currentReplicas": present,
            "desiredReplicas": desired,
        }
        set_condition(scaler, "AbleToScale", True, "ReadyForNewScale")
        reason = "ValidMetricFound" if asked is not None else "FailedGetExternalMetric"
        set_condition(scaler, "ScalingActive", asked is not None, reason)
        if desired != wanted:
            target["spec"]["replicas"] = desired
            self._store.replace(kind, target)
            scaler["status"]["lastScaleTime"] = timestamp()
        write_status(self._store, kinds.AUTOSCALER, scaler)

    async def _read(self, namespace: str, metric: dict[str, Any]) -> Reading | None:
        if metric["type"] != "External":
            return None
        target = metric["external"]["target"]
        for source in self._sources:
            value = await source(namespace, metric["external"]["metric"])
            if value is not None:
                per_replica = target["type"] == "AverageValue"
                size = target["averageValue" if per_replica else "value"]
                return Reading(value, quantity(size), per_replica)
        return None
