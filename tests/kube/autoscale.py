"""The loop of the HorizontalPodAutoscaler: every 15 seconds, for each, what `hpa` decides.

External metrics come from sources that are given to it; what they do not know is missing. The HPAs
themselves have no status here.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from kubernetes.utils import parse_quantity

from tests.kube import kinds
from tests.kube.clock import Clock
from tests.kube.hpa import Autoscaler, Reading, Replicas, proposal
from tests.kube.objects import holds, status_of
from tests.kube.selectors import selector_of
from tests.kube.store import Obj, Store

PERIOD_SECONDS: Final = 15.0

Source = Callable[[str, dict[str, Any]], Awaitable[float | None]]
"""The value of an External metric: of a namespace and the metric's `name` and `selector`."""


def scale_target(store: Store, obj: Obj) -> Obj | None:
    """The Deployment that an HPA or a ScaledObject scales, if it is there."""
    name = obj["spec"]["scaleTargetRef"]["name"]
    return store.get(kinds.DEPLOYMENT, obj["metadata"]["namespace"], name)


def scale(store: Store, deployment: Obj, replicas: int) -> None:
    """Let it have so many replicas."""
    if deployment["spec"]["replicas"] != replicas:
        deployment["spec"]["replicas"] = replicas
        store.replace(kinds.DEPLOYMENT, deployment)


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
        readings = [await self._read(namespace, metric) for metric in spec["metrics"]]
        if (target := scale_target(self._store, scaler)) is None:
            return
        selector = selector_of(target["spec"]["selector"]["matchLabels"])
        pods = self._store.list(kinds.POD, namespace, selector)
        wanted, present = target["spec"]["replicas"], status_of(target).get("replicas", 0)
        ready = sum(holds(pod, "Ready") for pod in pods)
        asked = proposal(readings, Replicas(wanted, present, ready))
        memory = self._memory.setdefault(scaler["metadata"]["uid"], Autoscaler())
        desired = memory.decide(spec, self._clock.time(), wanted, asked)
        scale(self._store, target, desired)

    async def _read(self, namespace: str, metric: dict[str, Any]) -> Reading | None:
        if metric["type"] != "External":
            return None
        target = metric["external"]["target"]
        per_replica = target["type"] == "AverageValue"
        size = float(parse_quantity(target["averageValue" if per_replica else "value"]))
        for source in self._sources:
            value = await source(namespace, metric["external"]["metric"])
            if value is not None:
                return Reading(value, size, per_replica)
        return None
