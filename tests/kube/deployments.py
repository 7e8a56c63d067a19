"""The controller of Deployments: it makes ReplicaSets and scales them, old ones down, a new one up.

Faithful: RollingUpdate with never more than wanted + maxSurge pods, never fewer available by its
own doing than wanted - maxUnavailable, broken old pods first; pod-template-hash; the status and
conditions by which Helm and kubectl wait. Not here: Recreate, bounds in percent, revisions and
their history, adoption, pausing, deadlines, scaling in proportion in the midst of a rollout.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.kube import kinds
from tests.kube.objects import child_of, digest, owned, set_condition, status_of, write_status
from tests.kube.store import Obj, Objs, Store

HASH: Final = "pod-template-hash"


class Replicas(NamedTuple):
    """A ReplicaSet: what it shall have, and how many of those are available."""

    wanted: int
    available: int


def step(
    wanted: int, surge: int, unavailable: int, new: Replicas, old: Sequence[Replicas]
) -> list[int]:
    """What the old ReplicaSets, oldest first, and as the last the new one shall have next."""
    total = new.wanted + sum(one.wanted for one in old)
    least = wanted - unavailable
    room = max(0, wanted + surge - total)
    removable = max(0, total - least - (new.wanted - new.available))
    spare = max(0, new.available + sum(one.available for one in old) - least)
    counts = []
    for one in old:
        broken = min(removable, one.wanted - one.available)
        fewer = min(spare, one.available)
        removable, spare = removable - broken, spare - fewer
        counts.append(one.wanted - broken - fewer)
    return [*counts, min(wanted, new.wanted + room)]


def reconcile(store: Store) -> None:
    """Bring the ReplicaSets of all Deployments a step closer to what is asked for."""
    for deployment in store.list(kinds.DEPLOYMENT):
        _deployment(store, deployment)


def _deployment(store: Store, deployment: Obj) -> None:
    spec = deployment["spec"]
    sets = owned(store, kinds.REPLICA_SET, deployment)
    sets.sort(key=lambda one: str(one["metadata"]["creationTimestamp"]))
    template = digest(spec["template"])
    new = next((one for one in sets if one["metadata"]["labels"][HASH] == template), None)
    new = new or store.create(kinds.REPLICA_SET, _replica_set(deployment, template))
    sets = [one for one in sets if one["metadata"]["uid"] != new["metadata"]["uid"]] + [new]
    wanted, rolling = spec["replicas"], spec["strategy"]["rollingUpdate"]
    surge, unavailable = rolling["maxSurge"], rolling["maxUnavailable"]
    *old, latest = map(_replicas, sets)
    for one, replicas in zip(sets, step(wanted, surge, unavailable, latest, old), strict=True):
        if one["spec"]["replicas"] != replicas:
            one["spec"]["replicas"] = replicas
            store.replace(kinds.REPLICA_SET, one)
    _status(store, deployment, sets, wanted - unavailable)


def _replica_set(deployment: Obj, template: str) -> Obj:
    spec, name = deployment["spec"], f"{deployment['metadata']['name']}-{template}"
    given, hashed = spec["template"]["metadata"], {HASH: template}
    labels = given["labels"] | hashed
    return {
        "metadata": child_of(kinds.DEPLOYMENT, deployment, name) | {"labels": labels},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": spec["selector"]["matchLabels"] | hashed},
            "template": spec["template"] | {"metadata": given | {"labels": labels}},
        },
    }


def _replicas(replica_set: Obj) -> Replicas:
    wanted: int = replica_set["spec"]["replicas"]
    return Replicas(wanted, min(wanted, status_of(replica_set).get("availableReplicas", 0)))


def _status(store: Store, deployment: Obj, sets: Objs, least: int) -> None:
    wanted = deployment["spec"]["replicas"]
    replicas, ready, available = (
        sum(status_of(one).get(field, 0) for one in sets)
        for field in ("replicas", "readyReplicas", "availableReplicas")
    )
    updated = status_of(sets[-1]).get("replicas", 0)
    deployment["status"] = {
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": replicas,
        "updatedReplicas": updated,
        "readyReplicas": ready,
        "availableReplicas": available,
        "unavailableReplicas": max(0, wanted - available),
        "conditions": status_of(deployment).get("conditions", []),
    }
    enough = available >= least
    reason = "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable"
    set_condition(deployment, "Available", enough, reason)
    done = updated == replicas == wanted == available
    reason = "NewReplicaSetAvailable" if done else "ReplicaSetUpdated"
    set_condition(deployment, "Progressing", True, reason)
    write_status(store, kinds.DEPLOYMENT, deployment)
