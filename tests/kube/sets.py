"""The controllers of ReplicaSets and StatefulSets: they make and delete pods.

Faithful: the order in which a ReplicaSet picks its victims (with pod-deletion-cost), the order of a
StatefulSet's pods and that it replaces its highest old pod first, their statuses.
Not here: adoption of orphans, spread over nodes (there is one), minReadySeconds; a StatefulSet's
partitions, parallel pods and claims.
"""

from datetime import datetime
from typing import Any, Final

from tests.kube import kinds
from tests.kube.objects import (
    condition,
    digest,
    holds,
    is_active,
    owned,
    pod_of,
    status_of,
    suffix,
    write_status,
)
from tests.kube.store import Obj, Objs, Store, key_of

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"


def reconcile(store: Store) -> None:
    """Bring the pods of all sets a step closer to what is asked for."""
    for owner in store.list(kinds.REPLICA_SET):
        _scale(store, owner)
        pods = _active(store, owner)
        owner["status"] = _counts(owner, pods)
        write_status(store, kinds.REPLICA_SET, owner)
    for owner in store.list(kinds.STATEFUL_SET):
        revision = f"{owner['metadata']['name']}-{digest(owner['spec']['template'])}"
        _advance(store, owner, revision)
        pods = _active(store, owner)
        owner["status"] = _counts(owner, pods) | _revisions(owner, pods, revision)
        write_status(store, kinds.STATEFUL_SET, owner)


def victim_order(pod: Obj) -> tuple[Any, ...]:
    """Sorts the pods of a ReplicaSet: what it deletes first comes first."""
    statuses = status_of(pod).get("containerStatuses", [])
    ready = holds(pod, "Ready")
    return (
        bool(pod["spec"].get("nodeName")),
        status_of(pod).get("phase") == "Running",
        ready,
        int(pod["metadata"].get("annotations", {}).get(DELETION_COST, 0)),
        -_seconds(condition(pod, "Ready")["lastTransitionTime"]) if ready else 0,
        -max((one["restartCount"] for one in statuses), default=0),
        -_seconds(pod["metadata"]["creationTimestamp"]),
    )


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


def _active(store: Store, owner: Obj) -> Objs:
    return [pod for pod in owned(store, kinds.POD, owner) if is_active(pod)]


def _counts(owner: Obj, pods: Objs) -> dict[str, Any]:
    ready = sum(holds(pod, "Ready") for pod in pods)
    counts = {"replicas": len(pods), "readyReplicas": ready, "availableReplicas": ready}
    return counts | {"observedGeneration": owner["metadata"]["generation"]}


def _scale(store: Store, owner: Obj) -> None:
    """As many pods as a ReplicaSet shall have."""
    pods, wanted = _active(store, owner), owner["spec"]["replicas"]
    for victim in sorted(pods, key=victim_order)[: max(0, len(pods) - wanted)]:
        store.delete(kinds.POD, *key_of(victim))
    for _ in range(wanted - len(pods)):
        name = f"{owner['metadata']['name']}-{suffix()}"
        store.create(kinds.POD, pod_of(kinds.REPLICA_SET, owner, name, {}))


def _advance(store: Store, owner: Obj, revision: str) -> None:
    """The lowest pod that is missing; when all are ready, the highest too many, or old, goes."""
    pods = {pod["metadata"]["name"]: pod for pod in owned(store, kinds.POD, owner)}
    numbers = range(owner["spec"]["replicas"])
    names = [f"{owner['metadata']['name']}-{number}" for number in numbers]
    for number, name in enumerate(names):
        if name not in pods:
            labels = {
                "statefulset.kubernetes.io/pod-name": name,
                "apps.kubernetes.io/pod-index": str(number),
                "controller-revision-hash": revision,
            }
            store.create(kinds.POD, pod_of(kinds.STATEFUL_SET, owner, name, labels))
            return
        if not (is_active(pods[name]) and holds(pods[name], "Ready")):
            return
    extra = sorted(pods.keys() - set(names), key=lambda name: (len(name), name))
    old = [name for name in names if _revision(pods[name]) != revision]
    for name in (extra or old)[-1:]:
        store.delete(kinds.POD, *key_of(pods[name]))


def _revisions(owner: Obj, pods: Objs, revision: str) -> dict[str, Any]:
    """Of a set that is changed, the revision before is not remembered."""
    updated = sum(_revision(pod) == revision for pod in pods)
    done = updated == len(pods) == owner["spec"]["replicas"]
    counts = {"updatedReplicas": updated, "currentReplicas": updated}
    return counts | {"updateRevision": revision, "currentRevision": revision if done else "before"}


def _revision(pod: Obj) -> str:
    found: str = pod["metadata"]["labels"]["controller-revision-hash"]
    return found
