"""What controllers and the kubelet share: how they run, read objects, make and report others."""

import asyncio
import copy
import hashlib
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

from tests.kube.errors import ApiError
from tests.kube.kinds import Kind
from tests.kube.store import Obj, Objs, Store, key_of, timestamp

PERIOD_SECONDS, RETRY_SECONDS = 1.0, 0.1


async def follow(store: Store, reconcile: Callable[[Store], Awaitable[None] | None]) -> None:
    """Call `reconcile` until cancelled: after each change, of which many may be one, and at times.

    One that meets a refusal of the API is called again, as real controllers do; any other error is
    a defect and ends all.
    """
    while True:
        seen = store.revision
        try:
            if (waiting := reconcile(store)) is not None:
                await waiting
        except ApiError:
            await asyncio.sleep(RETRY_SECONDS)
        else:
            await store.wait(PERIOD_SECONDS if store.revision == seen else 0)


def suffix() -> str:
    """Five letters as in generated names."""
    return "".join(random.choices("bcdfghjklmnpqrstvwxz2456789", k=5))


def digest(value: Any) -> str:
    """Ten letters that say which template this is."""
    return hashlib.sha1(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]


def status_of(obj: Obj) -> dict[str, Any]:
    """Its status, empty where it has none yet."""
    return obj.get("status") or {}


def condition(obj: Obj, kind: str) -> dict[str, Any]:
    """The condition of that type, empty where it has none."""
    conditions = status_of(obj).get("conditions", [])
    return next((one for one in conditions if one["type"] == kind), {})


def holds(obj: Obj, kind: str) -> bool:
    """Whether a condition is True."""
    return condition(obj, kind).get("status") == "True"


def set_condition(obj: Obj, kind: str, true: bool, reason: str = "") -> None:
    """Set a condition; the time of its transition stays where its status does."""
    before, status = condition(obj, kind), str(true)
    new = {"type": kind, "status": status, "reason": reason, "lastTransitionTime": timestamp()}
    if before.get("status") == status:
        new["lastTransitionTime"] = before["lastTransitionTime"]
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    obj["status"]["conditions"] = [one for one in conditions if one["type"] != kind] + [new]


def is_terminating(pod: Obj) -> bool:
    """Whether it was deleted, but is not gone."""
    return "deletionTimestamp" in pod["metadata"]


def is_finished(pod: Obj) -> bool:
    """Whether its containers have ended for good."""
    return status_of(pod).get("phase") in {"Succeeded", "Failed"}


def is_active(pod: Obj) -> bool:
    """Whether a controller counts it."""
    return not is_terminating(pod) and not is_finished(pod)


def owned(store: Store, kind: Kind, owner: Obj) -> Objs:
    """The objects of a kind that `owner` controls."""
    uid = owner["metadata"]["uid"]
    return [
        obj
        for obj in store.list(kind, owner["metadata"]["namespace"])
        if any(one["uid"] == uid for one in obj["metadata"].get("ownerReferences", []))
    ]


def child_of(kind: Kind, owner: Obj, name: str) -> dict[str, Any]:
    """The metadata of an object that `owner`, of `kind`, controls."""
    named = {field: owner["metadata"][field] for field in ("name", "uid")}
    reference = {"apiVersion": kind.api_version, "kind": kind.kind, **named, "controller": True}
    namespace = owner["metadata"]["namespace"]
    return {"name": name, "namespace": namespace, "ownerReferences": [reference]}


def pod_of(kind: Kind, owner: Obj, name: str, labels: dict[str, str]) -> Obj:
    """A pod of the owner's template, with more labels."""
    template = copy.deepcopy(owner["spec"]["template"])
    metadata = template["metadata"] | child_of(kind, owner, name)
    metadata["labels"] = metadata["labels"] | labels
    return {"metadata": metadata, "spec": template["spec"]}


def write_status(store: Store, kind: Kind, obj: Obj) -> None:
    """Store the status of an object that may have changed since, or gone, if it is a new one."""
    now = store.get(kind, *key_of(obj))
    if now is not None and status_of(now) != obj["status"]:
        store.replace(kind, now | {"status": obj["status"]}, subresource="status")
