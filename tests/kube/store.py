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
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from tests.kube import kinds
from tests.kube.admission import admit, new_cluster_ips
from tests.kube.errors import conflict, expired, not_found, of_object
from tests.kube.kinds import Kind
from tests.kube.ownership import Owner, apply, track
from tests.kube.selectors import labels_match

Obj = dict[str, Any]
Objs = list[Obj]
Key = tuple[str, str]  # namespace ("" of what has none), name

# Metadata that the server gives.
_GIVEN = (
    *("uid", "resourceVersion", "creationTimestamp", "generation", "namespace"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
)


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
        now: the clock of timestamps.
        cluster_ips: addresses that Services get; by default 127.96.0.1 and what follows.

    Raises (all methods): ApiError.
    """

    def __init__(
        self,
        *,
        history: int = 10_000,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        cluster_ips: Iterator[str] | None = None,
    ) -> None:
        self.revision = 1
        self._objects: dict[Kind, dict[Key, Obj]] = {kind: {} for kind in kinds.KINDS}
        self._history: deque[Change] = deque(maxlen=history)
        self._now = now
        self._cluster_ips = cluster_ips or new_cluster_ips()
        self._changed = asyncio.Event()
        self._dry = False
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

    async def watch(self, kind: Kind, after: int) -> AsyncIterator[Change]:
        """The changes after a revision, for ever; 410 when they are not kept any more."""
        while True:
            self.check_kept(after)
            if after == self.revision:
                await self._changed.wait()
                continue
            change = self._history[after - self.revision]
            after += 1
            if change.kind == kind:
                yield change

    async def subscribe(self, kind: Kind) -> AsyncIterator[tuple[str, Obj]]:
        """ADDED of what is there, then each (type, object) that changes."""
        revision = self.revision
        for obj in self.list(kind):
            yield "ADDED", obj
        async for change in self.watch(kind, revision):
            yield change.type, _copy(change.obj)

    def check_kept(self, revision: int) -> None:
        """410 if what came after a revision has been forgotten."""
        oldest = self.revision - len(self._history)
        if revision < oldest:
            raise expired(revision, oldest)

    def compact(self) -> None:
        """Forget the history: older resource versions are answered with 410."""
        self._history.clear()

    # Writing

    @contextmanager
    def dry_run(self, dry: bool) -> Iterator[None]:
        """Within it writes are checked and answered, but not done. Not across an await."""
        self._dry = dry
        try:
            yield
        finally:
            self._dry = False

    def create(self, kind: Kind, obj: Obj, *, manager: str = "controllers") -> Obj:
        """Store a new object; its status is left out where the kind has one."""
        new = self._new(kind, obj)
        track(kind, {}, new, Owner(manager, "Update", ""), self._time())
        return self._insert(kind, new)

    def replace(
        self, kind: Kind, obj: Obj, *, subresource: str = "", manager: str = "controllers"
    ) -> Obj:
        """Store an object over the one that is there.

        A resourceVersion or uid in `obj` must be the present one. Without `subresource` the status
        stays as it is; with "status", all else does.
        """
        live = self._live(kind, *key_of(obj, kind))
        new = self._over(kind, live, obj, subresource)
        track(kind, live, new, Owner(manager, "Update", subresource), self._time())
        return self._update(kind, live, new)

    def apply(
        self, kind: Kind, obj: Obj, *, manager: str, force: bool = False, subresource: str = ""
    ) -> tuple[Obj, bool]:
        """Server-side apply: the object, and whether it is new. 409 if others own what changes."""
        owner = Owner(manager, "Apply", subresource)
        applied = _copy(obj) if subresource else _without_status(kind, obj)
        live = self._objects[kind].get(key_of(applied, kind))
        merged = apply(kind, live or {}, applied, owner, force, self._time())
        new = self._over(kind, live, merged, subresource) if live else self._new(kind, merged)
        new["metadata"]["managedFields"] = merged["metadata"]["managedFields"]
        return (self._update(kind, live, new), False) if live else (self._insert(kind, new), True)

    def delete(self, kind: Kind, namespace: str, name: str, *, grace: int | None = None) -> Obj:
        """Delete an object and its dependents, or begin to.

        A scheduled pod (one with spec.nodeName) that has not ended is marked with
        deletionTimestamp, and goes when it is deleted again with `grace` 0. Finalizers hold an
        object until they are gone.
        """
        live = self._live(kind, namespace, name)
        there = live["metadata"]
        new, period = _copy(live), _grace(kind, live, grace)
        if "deletionTimestamp" not in there or period < there["deletionGracePeriodSeconds"]:
            new["metadata"]["deletionTimestamp"] = self._time(period)
            new["metadata"]["deletionGracePeriodSeconds"] = period
        return self._update(kind, live, new)

    # Parts of writes

    def _new(self, kind: Kind, obj: Obj) -> Obj:
        """What creating `obj` stores, its revision and owners aside."""
        new: Obj = {"apiVersion": kind.api_version, "kind": kind.kind}
        new |= _without_status(kind, obj)
        metadata = new.setdefault("metadata", {})
        namespace = metadata.pop("namespace", "default")
        if "name" not in metadata and "generateName" in metadata:
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        for field in (*_GIVEN, "managedFields"):
            metadata.pop(field, None)
        admit(kind, new, None, self._cluster_ips)
        if kind.namespaced:
            self._live(kinds.NAMESPACE, "", namespace)
            metadata["namespace"] = namespace
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": self._time()}
        if "spec" in new:
            metadata["generation"] = 1
        if kind in (kinds.POD, kinds.NAMESPACE):
            new["status"] = {"phase": "Pending" if kind == kinds.POD else "Active"}
        return new

    def _insert(self, kind: Kind, obj: Obj) -> Obj:
        name = obj["metadata"]["name"]
        if key_of(obj) in self._objects[kind]:
            raise of_object(409, "AlreadyExists", kind, name, "already exists")
        self._commit("ADDED", kind, obj, None)
        if kind == kinds.NAMESPACE and not self._dry:
            account = {"metadata": {"name": "default", "namespace": name}}
            self.create(kinds.SERVICE_ACCOUNT, account)
        self._collect(kind, obj)
        return _copy(obj)

    def _over(self, kind: Kind, live: Obj, obj: Obj, subresource: str) -> Obj:
        """What replacing `live` by `obj` stores, its revision and owners aside."""
        new, name, there = _copy(obj), live["metadata"]["name"], live["metadata"]
        advice = "please apply your changes to the latest version and try again"
        for field, why in (
            ("uid", "Precondition failed: UID in precondition is not that of the object"),
            ("resourceVersion", f"the object has been modified; {advice}"),
        ):
            if new["metadata"].get(field) not in (None, "", there[field]):
                raise conflict(kind, name, why)
        if subresource == "status":
            new = _copy(live) | {"status": new.get("status", {})}
        elif kind not in kinds.STATELESS:
            new.pop("status", None)
            new |= {"status": _copy(live["status"])} if "status" in live else {}
        metadata = {k: v for k, v in new["metadata"].items() if k not in _GIVEN}
        new["metadata"] = metadata | {k: there[k] for k in _GIVEN if k in there}
        new |= {"apiVersion": kind.api_version, "kind": kind.kind}
        admit(kind, new, live, self._cluster_ips)
        if "generation" in there and live.get("spec") != new.get("spec"):
            new["metadata"]["generation"] += 1
        return new

    def _update(self, kind: Kind, live: Obj, new: Obj) -> Obj:
        metadata = new["metadata"]
        held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
        if "deletionTimestamp" in metadata and not held:
            self._remove(kind, new)
        elif new != live:
            self._commit("MODIFIED", kind, new, live)
        return _copy(new)

    def _commit(self, change: str, kind: Kind, obj: Obj, old: Obj | None) -> None:
        if self._dry:
            return
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        if change == "DELETED":
            del self._objects[kind][key_of(obj)]
        else:
            self._objects[kind][key_of(obj)] = obj
        self._history.append(Change(self.revision, change, kind, obj, old))
        self._changed.set()
        self._changed = asyncio.Event()

    def _remove(self, kind: Kind, obj: Obj) -> None:
        gone = _copy(obj)
        self._commit("DELETED", kind, gone, self._objects[kind][key_of(obj)])
        uid = gone["metadata"]["uid"]
        for other, objects in self._objects.items() if not self._dry else ():
            for one in list(objects.values()):
                if any(owner["uid"] == uid for owner in _owners(one)):
                    self._collect(other, one)

    def _collect(self, kind: Kind, obj: Obj) -> None:
        """Delete an object whose owners are all gone."""
        found = {one["metadata"]["uid"] for all_ in self._objects.values() for one in all_.values()}
        gone = _owners(obj) and not any(owner["uid"] in found for owner in _owners(obj))
        if gone and not self._dry and "deletionTimestamp" not in obj["metadata"]:
            self.delete(kind, *key_of(obj))

    def _live(self, kind: Kind, namespace: str, name: str) -> Obj:
        found = self._objects[kind].get((namespace if kind.namespaced else "", name))
        if found is None:
            raise not_found(kind, name)
        return found

    def _time(self, later: int = 0) -> str:
        return f"{self._now() + timedelta(seconds=later):%Y-%m-%dT%H:%M:%SZ}"


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


def _owners(obj: Obj) -> Objs:
    owners: Objs = obj["metadata"].get("ownerReferences", [])
    return owners


def _without_status(kind: Kind, obj: Obj) -> Obj:
    return {k: v for k, v in _copy(obj).items() if k != "status" or kind in kinds.STATELESS}


def _copy(obj: Obj) -> Obj:
    result: Obj = json.loads(json.dumps(obj))
    return result
