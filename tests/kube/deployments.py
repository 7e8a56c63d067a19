"""The controller of Deployments: it makes and scales ReplicaSets.

Faithful: rolling updates (`rollout`) and Recreate, pod-template-hash, revisions, the limit of the
history, status and conditions by which Helm and kubectl wait. Not here: adoption and pausing.
"""

from typing import Final

from tests.kube import kinds
from tests.kube.objects import (
    age,
    child_of,
    condition,
    digest,
    is_terminating,
    owned,
    set_condition,
    status_of,
    timestamp,
    write_status,
)
from tests.kube.rollout import Replicas, Strategy, step
from tests.kube.store import Obj, Store, key_of

HASH: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
DONE: Final = "NewReplicaSetAvailable"


def reconcile(store: Store) -> None:
    """Bring the ReplicaSets of all Deployments a step closer to what is asked for."""
    for deployment in store.list(kinds.DEPLOYMENT):
        if not is_terminating(deployment):
            _deployment(store, deployment)


def _deployment(store: Store, deployment: Obj) -> None:
    spec = deployment["spec"]
    sets = sorted(owned(store, kinds.REPLICA_SET, deployment), key=_revision)
    template = digest(spec["template"])
    new = next((one for one in sets if one["metadata"]["labels"][HASH] == template), None)
    old = [one for one in sets if one is not new]
    new = new or store.create(kinds.REPLICA_SET, _replica_set(deployment, template))
    revision = max([1 + max(map(_revision, old), default=0), _revision(new)])
    new = _annotate(store, kinds.REPLICA_SET, new, revision)
    deployment = _annotate(store, kinds.DEPLOYMENT, deployment, revision)

    wanted, given = spec.get("replicas", 1), spec.get("strategy") or {}
    if given.get("type") == "Recreate":
        strategy = Strategy(0, wanted)
        gone = not any(owned(store, kinds.POD, one) for one in old)
        counts = [0] * len(old) + [wanted if gone else new["spec"]["replicas"]]
    else:
        rolling = given.get("rollingUpdate") or {}
        surge, missing = rolling.get("maxSurge", "25%"), rolling.get("maxUnavailable", "25%")
        strategy = Strategy.of(wanted, surge, missing)
        counts = step(wanted, strategy, _replicas(new), [_replicas(one) for one in old])
    for one, replicas in zip([*old, new], counts, strict=True):
        if one["spec"]["replicas"] != replicas:
            one["spec"]["replicas"] = replicas
            store.replace(kinds.REPLICA_SET, one)
    empty = [one for one in old if not one["spec"]["replicas"] and not _count(one, "replicas")]
    for one in empty[: max(0, len(empty) - spec.get("revisionHistoryLimit", 10))]:
        store.delete(kinds.REPLICA_SET, *key_of(one))
    _status(store, deployment, new, old, wanted - strategy.unavailable)


def _replica_set(deployment: Obj, template: str) -> Obj:
    spec = deployment["spec"]
    given = spec["template"]["metadata"]
    labels = given["labels"] | {HASH: template}
    metadata = child_of(
        kinds.DEPLOYMENT, deployment, f"{deployment['metadata']['name']}-{template}"
    )
    return {
        "metadata": metadata | {"labels": labels},
        "spec": {
            "replicas": 0,
            "minReadySeconds": spec.get("minReadySeconds", 0),
            "selector": {"matchLabels": spec["selector"]["matchLabels"] | {HASH: template}},
            "template": spec["template"] | {"metadata": given | {"labels": labels}},
        },
    }


def _revision(replica_set: Obj) -> int:
    return int((replica_set["metadata"].get("annotations") or {}).get(REVISION, 0))


def _annotate(store: Store, kind: kinds.Kind, obj: Obj, revision: int) -> Obj:
    if _revision(obj) == revision:
        return obj
    obj["metadata"].setdefault("annotations", {})[REVISION] = str(revision)
    return store.replace(kind, obj)


def _count(obj: Obj, field: str) -> int:
    found: int = status_of(obj).get(field, 0)
    return found


def _replicas(replica_set: Obj) -> Replicas:
    return Replicas(replica_set["spec"]["replicas"], _count(replica_set, "availableReplicas"))


def _status(store: Store, deployment: Obj, new: Obj, old: list[Obj], least: int) -> None:
    wanted = deployment["spec"].get("replicas", 1)
    replicas, ready, available = (
        sum(_count(one, field) for one in [new, *old])
        for field in ("replicas", "readyReplicas", "availableReplicas")
    )
    counts = {
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": replicas,
        "updatedReplicas": _count(new, "replicas"),
        "readyReplicas": ready,
        "availableReplicas": available,
        "unavailableReplicas": max(0, wanted - available),
    }
    before, last = status_of(deployment), condition(deployment, "Progressing")
    progressed = last is None or any(before.get(key) != value for key, value in counts.items())
    deployment["status"] = counts | {"conditions": before.get("conditions") or []}
    enough = available >= least
    reason = "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable"
    set_condition(deployment, "Available", enough, reason)
    updated = timestamp() if progressed or last is None else last["lastUpdateTime"]
    # Once it is done, pods that come and go do not count as a rollout.
    settled = last is not None and last["reason"] == DONE
    done = counts["updatedReplicas"] == replicas and (settled or replicas == wanted == available)
    late = not done and age(updated) > deployment["spec"].get("progressDeadlineSeconds", 600)
    reason = DONE if done else "ReplicaSetUpdated"
    reason = "ProgressDeadlineExceeded" if late else reason
    set_condition(deployment, "Progressing", not late, reason)
    condition(deployment, "Progressing")["lastUpdateTime"] = updated  # type: ignore[index]
    write_status(store, kinds.DEPLOYMENT, deployment)
