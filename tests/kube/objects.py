"""What controllers and the kubelet read from objects, and the pods that they make of templates."""

import copy
import hashlib
import json
import random
from datetime import UTC, datetime
from typing import Any

from tests.kube.kinds import Kind
from tests.kube.store import Obj, Store, key_of


def timestamp() -> str:
    """Now, as in the API."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def age(text: str) -> float:
    """Seconds since a timestamp."""
    return (datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds()


def suffix() -> str:
    """Five letters as in generated names."""
    return "".join(random.choices("bcdfghjklmnpqrstvwxz2456789", k=5))


def digest(value: Any) -> str:
    """Ten letters that say which template this is."""
    return hashlib.sha1(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]


def status_of(obj: Obj) -> dict[str, Any]:
    """Its status, empty where it has none yet."""
    return obj.get("status") or {}


def condition(obj: Obj, kind: str) -> dict[str, Any] | None:
    """The condition of that type."""
    conditions = status_of(obj).get("conditions") or []
    return next((one for one in conditions if one["type"] == kind), None)


def holds(obj: Obj, kind: str) -> bool:
    """Whether a condition is True."""
    return (condition(obj, kind) or {}).get("status") == "True"


def set_condition(obj: Obj, kind: str, true: bool, reason: str = "") -> None:
    """Set a condition; the time of its transition stays where its status does."""
    before, status = condition(obj, kind), str(true)
    new = {"type": kind, "status": status, "lastTransitionTime": timestamp()}
    if before and before["status"] == status:
        new["lastTransitionTime"] = before["lastTransitionTime"]
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    others = [one for one in conditions if one["type"] != kind]
    obj["status"]["conditions"] = [*others, new | ({"reason": reason} if reason else {})]


def is_terminating(obj: Obj) -> bool:
    """Whether it was deleted, but is not gone."""
    return "deletionTimestamp" in obj["metadata"]


def is_finished(pod: Obj) -> bool:
    """Whether its containers have ended for good."""
    return status_of(pod).get("phase") in {"Succeeded", "Failed"}


def is_active(pod: Obj) -> bool:
    """Whether a controller counts it."""
    return not is_terminating(pod) and not is_finished(pod)


def is_available(pod: Obj, min_ready_seconds: float) -> bool:
    """Whether it has been ready for so long."""
    if not holds(pod, "Ready"):
        return False
    since = (condition(pod, "Ready") or {})["lastTransitionTime"]
    return not min_ready_seconds or age(since) >= min_ready_seconds


def owned(store: Store, kind: Kind, owner: Obj) -> list[Obj]:
    """The objects of a kind that `owner` controls."""
    uid = owner["metadata"]["uid"]
    return [
        obj
        for obj in store.list(kind, owner["metadata"]["namespace"])
        for one in obj["metadata"].get("ownerReferences") or []
        if one.get("controller") and one["uid"] == uid
    ]


def child_of(kind: Kind, owner: Obj, name: str) -> dict[str, Any]:
    """The metadata of an object that `owner`, of `kind`, controls."""
    reference = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    namespace = owner["metadata"]["namespace"]
    return {"name": name, "namespace": namespace, "ownerReferences": [reference]}


def pod_of(kind: Kind, owner: Obj, name: str, labels: dict[str, str]) -> Obj:
    """A pod of the owner's template."""
    template = copy.deepcopy(owner["spec"]["template"])
    given = template.get("metadata") or {}
    metadata = child_of(kind, owner, name) | {
        "labels": (given.get("labels") or {}) | labels,
        "annotations": given.get("annotations") or {},
    }
    return {"metadata": metadata, "spec": template["spec"]}


def write_status(store: Store, kind: Kind, obj: Obj) -> None:
    """Store the status of an object that may have changed since, or gone, if it is a new one."""
    now = store.get(kind, *key_of(obj))
    if now is not None and status_of(now) != obj["status"]:
        store.replace(kind, now | {"status": obj["status"]}, subresource="status")
