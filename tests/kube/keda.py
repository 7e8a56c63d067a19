"""A loop like KEDA's, for ScaledObjects with one `external` trigger.

Faithful: the HPA that it makes (name, owner, bounds, behavior, metric s0-NAME of GetMetricSpec),
the metric that it serves to the HPA's loop (GetMetrics; a float above 0 wins over the integer),
IsActive for none (or idleReplicaCount) and more, with the cooldown, fallback after failures.
Not here: ScaledObjects with more triggers or other ones, StreamIsActive, pausing, modifiers.
"""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
from externalscaler import externalscaler_pb2 as messages
from externalscaler.externalscaler_pb2_grpc import ExternalScalerStub

from tests.kube import kinds
from tests.kube.autoscale import scale_target
from tests.kube.clock import Clock
from tests.kube.containers import MissingError, with_services
from tests.kube.hpa import quantity
from tests.kube.objects import child_of, owned, set_condition, write_status
from tests.kube.store import Obj, Store, key_of

CALL_SECONDS: Final = 3.0
LABEL: Final = "scaledobject.keda.sh/name"
FAILURES: Final = (grpc.aio.AioRpcError, MissingError)


class KedaLoop:
    """Turns the ScaledObjects of a store into HPAs, and serves their metrics (`read`)."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._failures: Counter[str] = Counter()
        self._active: dict[str, float] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            scaled = [one for one in self._store.list(kinds.SCALED_OBJECT) if _is_external(one)]
            for one in scaled:
                await self._poll(one)
            periods = [one["spec"].get("pollingInterval", 30) for one in scaled]
            await self._clock.sleep(min(periods, default=1))

    async def read(self, namespace: str, metric: dict[str, Any]) -> float | None:
        """A `Source` for the loop of the HPA."""
        name = (metric.get("selector") or {}).get("matchLabels", {}).get(LABEL)
        scaled = self._store.get(kinds.SCALED_OBJECT, namespace, name) if name else None
        if scaled is None:
            return None
        uid, fallback = scaled["metadata"]["uid"], scaled["spec"].get("fallback")
        try:
            async with _scaler(self._store, scaled) as (stub, reference):
                request = messages.GetMetricsRequest(
                    scaledObjectRef=reference, metricName=metric["name"].removeprefix("s0-")
                )
                answer = await stub.GetMetrics(request, timeout=CALL_SECONDS)
                await stub.IsActive(reference, timeout=CALL_SECONDS)
        except FAILURES:
            self._failures[uid] += 1
            if not fallback or self._failures[uid] <= fallback["failureThreshold"]:
                return None
            return self._fallback(scaled, fallback)
        self._failures[uid] = 0
        return sum(value.metricValueFloat if value.metricValueFloat > 0 else value.metricValue
                   for value in answer.metricValues)  # fmt: skip

    def _fallback(self, scaled: Obj, fallback: dict[str, Any]) -> float:
        """The value of an AverageValue metric that asks for the replicas of the fallback."""
        (hpa,) = owned(self._store, kinds.AUTOSCALER, scaled)
        target = hpa["spec"]["metrics"][0]["external"]["target"]
        found = scale_target(self._store, scaled)
        present, replicas = (
            found[1]["spec"].get("replicas", 1) if found else 0,
            fallback["replicas"],
        )
        chosen = {
            "static": replicas,
            "currentReplicas": present,
            "currentReplicasIfHigher": max(present, replicas),
            "currentReplicasIfLower": min(present, replicas),
        }[fallback.get("behavior", "static")]
        return chosen * quantity(target["averageValue"])

    async def _poll(self, scaled: Obj) -> None:
        try:
            async with _scaler(self._store, scaled) as (stub, reference):
                answer = await stub.GetMetricSpec(reference, timeout=CALL_SECONDS)
                active = (await stub.IsActive(reference, timeout=CALL_SECONDS)).result
        except FAILURES as error:
            set_condition(scaled, "Ready", False, "TriggerError")
            scaled["status"]["conditions"][-1]["message"] = str(error)
        else:
            self._make(scaled, answer.metricSpecs)
            self._activate(scaled, active)
            set_condition(scaled, "Ready", True, "ScaledObjectReady")
            set_condition(scaled, "Active", active, "ScalerActive" if active else "ScalerNotActive")
        write_status(self._store, kinds.SCALED_OBJECT, scaled)

    def _make(self, scaled: Obj, specs: list[messages.MetricSpec]) -> None:
        """The HPA as the ScaledObject is now."""
        spec, name = scaled["spec"], scaled["metadata"]["name"]
        trigger, advanced = spec["triggers"][0], spec.get("advanced") or {}
        kind = trigger.get("metricType", "AverageValue")
        field = kind[0].lower() + kind[1:]
        metrics = []
        for one in specs:
            size = one.targetSizeFloat if one.targetSizeFloat > 0 else one.targetSize
            selector = {"matchLabels": {LABEL: name}}
            metric = {"name": f"s0-{one.metricName}", "selector": selector}
            target = {"type": kind, field: f"{round(size * 1000)}m"}
            metrics.append({"type": "External", "external": {"metric": metric, "target": target}})
        config = advanced.get("horizontalPodAutoscalerConfig") or {}
        wanted = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment"}
            | spec["scaleTargetRef"],
            "minReplicas": spec.get("minReplicaCount", 0) or 1,
            "maxReplicas": spec.get("maxReplicaCount", 100),
            "metrics": metrics,
        } | ({"behavior": config["behavior"]} if "behavior" in config else {})
        existing = owned(self._store, kinds.AUTOSCALER, scaled)
        if not existing:
            metadata = child_of(kinds.SCALED_OBJECT, scaled, config.get("name", f"keda-hpa-{name}"))
            self._store.create(kinds.AUTOSCALER, {"metadata": metadata, "spec": wanted})
        elif existing[0]["spec"] != wanted:
            self._store.replace(kinds.AUTOSCALER, existing[0] | {"spec": wanted})

    def _activate(self, scaled: Obj, active: bool) -> None:
        """Between no replicas and some; the HPA does the rest."""
        found = scale_target(self._store, scaled)
        if found is None:
            return
        kind, target = found
        spec, now, uid = scaled["spec"], self._clock.time(), scaled["metadata"]["uid"]
        replicas, least = target["spec"].get("replicas", 1), spec.get("minReplicaCount", 0)
        idle = spec.get("idleReplicaCount", 0 if least == 0 else None)
        if active:
            self._active[uid] = now
        unused = now - self._active.setdefault(uid, now) > spec.get("cooldownPeriod", 300)
        wanted = replicas
        if active and replicas == (idle or 0):
            wanted = max(1, least)
        elif not active and idle is not None and replicas > idle and unused:
            wanted = idle
        elif not active and idle is None and replicas < least:
            wanted = least
        if wanted != replicas:
            target["spec"]["replicas"] = wanted
            self._store.replace(kind, target)


def _is_external(scaled: Obj) -> bool:
    return [trigger["type"] for trigger in scaled["spec"]["triggers"]] == ["external"]


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
