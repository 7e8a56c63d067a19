"""The objects of the cluster, in memory, with what the API promises about them.

Objects are plain dicts as in JSON; what the store gives and takes is copied, so callers may change
it. Every write has one revision, which becomes the object's resourceVersion, and one `Change` in a
bounded history, from which watches are served. All methods belong to one asyncio loop; a write is
one synchronous call, garbage collection of dependents included.
"""

import asyncio
import json
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from tests.kube import fields, kinds
from tests.kube.defaults import complete
from tests.kube.errors import ApiError, not_found, of_object
from tests.kube.kinds import Kind
from tests.kube.selectors import labels_match

Obj = dict[str, Any]
Objs = list[Obj]
Key = tuple[str, str]  # namespace ("" of what has none), name

# Metadata that the server gives.
_GIVEN = (
    *("uid", "resourceVersion", "creationTimestamp", "generation", "namespace"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
)
_PHASES = {kinds.POD: "Pending", kinds.NAMESPACE: "Active"}  # of what is new


class Change(NamedTuple):
    """One write: `type` is ADDED, MODIFIED or DELETED; `old` is what was there before."""

    revision: int
    type: str
    kind: Kind
    obj: Obj
    old: Obj | None


class Store:
    """The objects.

    Args:
        history: how many changes are kept for watches; older ones are answered with 410.
        cluster_ips: addresses that Services get; by default 127.96.0.1 to 254.

    Raises (all methods): ApiError.
    """

    def __init__(self, *, history: int = 10_000, cluster_ips: Iterator[str] | None = None) -> None:
        self.revision = 1
        self._objects: dict[Kind, dict[Key, Obj]] = {kind: {} for kind in kinds.KINDS}
        self._owners: dict[str, fields.Owners] = {}  # by uid
        self._history: deque[Change] = deque(maxlen=history)
        self._cluster_ips = cluster_ips or (f"127.96.0.{host}" for host in range(1, 255))
        self._changed = asyncio.Event()
        for name in ("default", "kube-system"):
            self.create(kinds.NAMESPACE, {"metadata": {"name": name}})

    # Reading

    def get(self, kind: Kind, namespace: str, name: str) -> Obj | None:
        """The object, or None."""
        found = self._objects[kind].get((namespace if kind.namespaced else "", name))
        return _copy(found) if found else None

    def list(self, kind: Kind, namespace: str | None = None, selector: str = "") -> Objs:
        """The objects of a namespace (None: of all) whose labels match, by namespace and name."""
        matches = labels_match(selector)
        return [
            _copy(obj)
            for key, obj in sorted(self._objects[kind].items())
            if namespace in (None, key[0]) and matches(obj["metadata"].get("labels", {}))
        ]

    def since(self, revision: int) -> "list[Change]":
        """The changes after a revision; 410 when they are not kept any more."""
        oldest = self.revision - len(self._history)
        if revision < oldest:
            raise ApiError(410, "Expired", f"too old resource version: {revision} ({oldest})")
        return [self._history[at] for at in range(revision - self.revision, 0)]

    async def wait(self, seconds: float) -> None:
        """Until something changes, for so long at most."""
        with suppress(TimeoutError):
            # Not wait_for, which may lose a cancellation before Python 3.12.
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def compact(self) -> None:
        """Forget the history: whoever has not seen it all, as of now, is answered with 410."""
        self._history.clear()
        self.revision += 1
        self._notify()

    # Writing

    def create(self, kind: Kind, obj: Obj, *, manager: str = "controllers") -> Obj:
        """Store a new object, without its status."""
        if (key := key_of(obj, kind)) in self._objects[kind]:
            raise of_object(409, "AlreadyExists", kind, key[1], "already exists")
        new = self._built(kind, {}, obj)
        return self._write(kind, {}, new, fields.updated({}, new, {}, manager))

    def replace(
        self, kind: Kind, obj: Obj, *, subresource: str = "", manager: str = "controllers"
    ) -> Obj:
        """Store an object over the one that is there.

        A resourceVersion or uid in `obj` must be the present one. Without `subresource` the status
        stays as it is; with "status", all else does.
        """
        live = self._live(kind, *key_of(obj, kind))
        for field in ("uid", "resourceVersion"):
            if obj["metadata"].get(field) not in (None, "", live["metadata"][field]):
                words = f"has been modified: {field} is not that of the object; please try again"
                raise of_object(409, "Conflict", kind, live["metadata"]["name"], words)
        owners = self._owners[live["metadata"]["uid"]]
        if subresource == "status":
            status = _clean(obj).get("status", {})
            return self._write(kind, live, _copy(live) | {"status": status}, owners)
        new = self._built(kind, live, obj)
        return self._write(kind, live, new, fields.updated(live, new, owners, manager))

    def apply(self, kind: Kind, obj: Obj, *, manager: str, force: bool = False) -> tuple[Obj, bool]:
        """Server-side apply: the object, and whether it is new. 409 if others own what changes."""
        live = self._objects[kind].get(key_of(obj, kind), {})
        owners = self._owners[live["metadata"]["uid"]] if live else {}
        merged, owners = fields.apply(live, _clean(obj), owners, manager, force=force)
        return self._write(kind, live, self._built(kind, live, merged), owners), not live

    def delete(self, kind: Kind, namespace: str, name: str, *, grace: int | None = None) -> None:
        """Delete an object and its dependents, or begin to.

        A scheduled pod (one with spec.nodeName) that has not ended is marked with
        deletionTimestamp, and goes when it is deleted again with `grace` 0.
        """
        live = self._live(kind, namespace, name)
        period, there = _grace(kind, live, grace), live["metadata"]
        if not period:
            self._remove(kind, live)
        elif period < there.get("deletionGracePeriodSeconds", period + 1):
            new = _copy(live)
            new["metadata"]["deletionTimestamp"] = timestamp(period)
            new["metadata"]["deletionGracePeriodSeconds"] = period
            self._commit("MODIFIED", kind, new, live)

    # Parts of writes

    def _built(self, kind: Kind, live: Obj, obj: Obj) -> Obj:
        """What writing `obj` over `live` (empty where there is none) stores, but its revision."""
        new = _clean(obj) | {"apiVersion": kind.api_version, "kind": kind.kind}
        if live:
            given = {name: v for name, v in live["metadata"].items() if name in _GIVEN}
            status = live.get("status")
        else:
            namespace, _ = key_of(new, kind)
            given = {"uid": str(uuid.uuid4()), "creationTimestamp": timestamp(), "generation": 1}
            if namespace:
                given["namespace"] = self._live(kinds.NAMESPACE, "", namespace)["metadata"]["name"]
            status = {"phase": _PHASES[kind]} if kind in _PHASES else None
        metadata = {name: v for name, v in new["metadata"].items() if name not in _GIVEN}
        new["metadata"] = metadata | given
        new.pop("status", None)
        if status is not None:
            new["status"] = status
        complete(kind, new, live, self._cluster_ips)
        if live and live.get("spec") != new.get("spec"):
            new["metadata"]["generation"] += 1
        return new

    def _write(self, kind: Kind, live: Obj, new: Obj, owners: fields.Owners) -> Obj:
        self._owners[new["metadata"]["uid"]] = owners
        if new != live:
            self._commit("MODIFIED" if live else "ADDED", kind, new, live or None)
        return _copy(new)

    def _remove(self, kind: Kind, obj: Obj) -> None:
        uid = obj["metadata"]["uid"]
        self._commit("DELETED", kind, _copy(obj), obj)
        del self._owners[uid]
        for other, objects in self._objects.items():
            for key, one in list(objects.items()):
                if any(owner["uid"] == uid for owner in one["metadata"].get("ownerReferences", [])):
                    self.delete(other, *key)

    def _commit(self, change: str, kind: Kind, obj: Obj, old: Obj | None) -> None:
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        if change == "DELETED":
            del self._objects[kind][key_of(obj)]
        else:
            self._objects[kind][key_of(obj)] = obj
        self._history.append(Change(self.revision, change, kind, obj, old))
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _live(self, kind: Kind, namespace: str, name: str) -> Obj:
        found = self._objects[kind].get((namespace if kind.namespaced else "", name))
        if found is None:
            raise not_found(kind, name)
        return found


def key_of(obj: Obj, kind: Kind | None = None) -> Key:
    """Namespace and name; with a kind, an object's namespace may be left out."""
    metadata = obj["metadata"]
    if kind is None:
        return metadata.get("namespace", ""), metadata["name"]
    return (metadata.get("namespace", "default") if kind.namespaced else ""), metadata["name"]


def _grace(kind: Kind, obj: Obj, asked: int | None) -> int:
    """Seconds from the deletion to the end; 0 of what is not a running pod."""
    ended = obj.get("status", {}).get("phase") in ("Succeeded", "Failed")
    if kind != kinds.POD or ended or "nodeName" not in obj["spec"]:
        return 0
    period: int = obj["spec"]["terminationGracePeriodSeconds"] if asked is None else asked
    return period


def timestamp(later: int = 0) -> str:
    """So many seconds from now, as in the API."""
    return f"{datetime.now(UTC) + timedelta(seconds=later):%Y-%m-%dT%H:%M:%SZ}"


def _copy(obj: Obj) -> Obj:
    result: Obj = json.loads(json.dumps(obj))
    return result


def _clean(obj: Obj) -> Obj:
    """A copy without what is null, which is as good as absent."""

    def present(part: Obj) -> Obj:
        return {name: value for name, value in part.items() if value is not None}

    result: Obj = json.loads(json.dumps(obj), object_hook=present)
    return result
