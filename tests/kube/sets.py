"""The controllers of ReplicaSets and StatefulSets: they make and delete pods.

Faithful: the order in which a ReplicaSet picks its victims (with pod-deletion-cost), the order of a
StatefulSet's pods and that it replaces its highest old pod first, their statuses.
Not here: adoption of orphans, spread over nodes (there is one), partitions, and objects for
PersistentVolumeClaims (the kubelet has a folder for each claim).
"""

from datetime import datetime
from typing import Any, Final

from tests.kube import kinds
from tests.kube.objects import (
    condition,
    digest,
    holds,
    is_active,
    is_available,
    is_terminating,
    owned,
    pod_of,
    status_of,
    suffix,
    write_status,
)
from tests.kube.store import Obj, Store, key_of

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"


def reconcile(store: Store) -> None:
    """Bring the pods of all sets a step closer to what is asked for."""
    for replica_set in store.list(kinds.REPLICA_SET):
        if not is_terminating(replica_set):
            _replica_set(store, replica_set)
    for stateful_set in store.list(kinds.STATEFUL_SET):
        if not is_terminating(stateful_set):
            _stateful_set(store, stateful_set)


def victim_order(pod: Obj) -> tuple[Any, ...]:
    """Sorts the pods of a ReplicaSet: what it deletes first comes first."""
    statuses = status_of(pod).get("containerStatuses") or []
    ready = condition(pod, "Ready") if holds(pod, "Ready") else None
    return (
        bool(pod["spec"].get("nodeName")),
        status_of(pod).get("phase") == "Running",
        ready is not None,
        int((pod["metadata"].get("annotations") or {}).get(DELETION_COST, 0)),
        -_seconds(ready["lastTransitionTime"]) if ready else 0,
        -max((one["restartCount"] for one in statuses), default=0),
        -_seconds(pod["metadata"]["creationTimestamp"]),
    )


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


def _replica_set(store: Store, replica_set: Obj) -> None:
    labels, wanted = replica_set["metadata"]["labels"], replica_set["spec"]["replicas"]
    pods = [pod for pod in owned(store, kinds.POD, replica_set) if is_active(pod)]
    pods.sort(key=victim_order)
    for victim in pods[: max(0, len(pods) - wanted)]:
        store.delete(kinds.POD, *key_of(victim))
        pods.remove(victim)
    for _ in range(wanted - len(pods)):
        name = f"{replica_set['metadata']['name']}-{suffix()}"
        pods.append(store.create(kinds.POD, pod_of(kinds.REPLICA_SET, replica_set, name, labels)))
    replica_set["status"] = _counts(replica_set, pods) | {"fullyLabeledReplicas": len(pods)}
    write_status(store, kinds.REPLICA_SET, replica_set)


def _counts(owner: Obj, pods: list[Obj]) -> dict[str, Any]:
    patience = owner["spec"].get("minReadySeconds", 0)
    return {
        "observedGeneration": owner["metadata"]["generation"],
        "replicas": len(pods),
        "readyReplicas": sum(holds(pod, "Ready") for pod in pods),
        "availableReplicas": sum(is_available(pod, patience) for pod in pods),
    }


def _stateful_set(store: Store, owner: Obj) -> None:
    name, wanted = owner["metadata"]["name"], owner["spec"].get("replicas", 1)
    revision = f"{name}-{digest(owner['spec']['template'])}"
    pods = {pod["metadata"]["name"]: pod for pod in owned(store, kinds.POD, owner)}
    _next(store, owner, pods, [f"{name}-{index}" for index in range(wanted)], revision)
    active = [pod for pod in pods.values() if is_active(pod)]
    updated = [pod for pod in active if _revision(pod) == revision]
    current = status_of(owner).get("currentRevision", revision)
    if len(updated) == len(pods) == wanted:
        current = revision
    owner["status"] = _counts(owner, active) | {
        "updatedReplicas": len(updated),
        "currentReplicas": sum(_revision(pod) == current for pod in active),
        "currentRevision": current,
        "updateRevision": revision,
    }
    write_status(store, kinds.STATEFUL_SET, owner)


def _next(store: Store, owner: Obj, pods: dict[str, Obj], names: list[str], revision: str) -> None:
    """The lowest pod that is missing; when all are ready, the highest too many, or old, goes."""
    for index, name in enumerate(names):
        if name not in pods:
            labels = {
                "statefulset.kubernetes.io/pod-name": name,
                "apps.kubernetes.io/pod-index": str(index),
                "controller-revision-hash": revision,
            }
            pod = pod_of(kinds.STATEFUL_SET, owner, name, labels)
            for claim in owner["spec"].get("volumeClaimTemplates") or []:
                volume = claim["metadata"]["name"]
                source = {"claimName": f"{volume}-{name}"}
                pod["spec"].setdefault("volumes", []).append(
                    {"name": volume, "persistentVolumeClaim": source}
                )
            pods[name] = store.create(kinds.POD, pod)
        parallel = owner["spec"].get("podManagementPolicy") == "Parallel"
        if not parallel and not (is_active(pods[name]) and holds(pods[name], "Ready")):
            return
    extra = sorted(pods.keys() - set(names), key=lambda name: int(name.rpartition("-")[2]))
    old = [name for name in names if _revision(pods[name]) != revision]
    for name in (extra or old)[-1:]:
        if not is_terminating(pods[name]):
            store.delete(kinds.POD, *key_of(pods[name]))


def _revision(pod: Obj) -> str:
    found: str = pod["metadata"]["labels"]["controller-revision-hash"]
    return found
