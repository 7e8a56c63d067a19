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
from tests.kube.admission import admit, check_update, new_cluster_ips, without_status
from tests.kube.errors import already_exists, conflict, expired, forbidden, not_found, stale
from tests.kube.kinds import Kind
from tests.kube.ownership import Owner, apply, track
from tests.kube.selectors import labels_match

Obj = dict[str, Any]
Found = list[tuple[Kind, Obj]]
Objs = list[Obj]
Key = tuple[str, str]  # namespace ("" of what has none), name

FOREGROUND = "foregroundDeletion"


class Change(NamedTuple):
    """One write: `type` is ADDED, MODIFIED or DELETED; `old` is what was there before."""

    revision: int
    type: str
    kind: Kind
    obj: Obj
    old: Obj | None


def copied(obj: Obj) -> Obj:
    """A deep copy of JSON."""
    result: Obj = json.loads(json.dumps(obj))
    return result


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
        return copied(found) if found else None

    def list(self, kind: Kind, namespace: str | None = None, selector: str = "") -> Objs:
        """The objects of a namespace (None: of all) whose labels match, by namespace and name."""
        matches = labels_match(selector)
        return [
            copied(obj)
            for key, obj in sorted(self._objects[kind].items())
            if namespace in (None, key[0]) and matches(obj["metadata"].get("labels", {}))
        ]

    def at(self, kind: Kind, revision: int) -> dict[Key, Obj]:
        """What was there at a revision. Not to be changed by the caller."""
        self._check_kept(revision)
        objects = dict(self._objects[kind])
        for change in reversed(self._history):
            if change.revision <= revision:
                break
            if change.kind == kind and change.old is None:
                del objects[key_of(change.obj)]
            elif change.kind == kind and change.old is not None:
                objects[key_of(change.obj)] = change.old
        return objects

    async def watch(self, kind: Kind, after: int) -> AsyncIterator[Change]:
        """The changes after a revision, for ever; 410 when they are not kept any more."""
        while True:
            self._check_kept(after)
            changed = self._changed
            if after == self.revision:
                await changed.wait()
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
            yield change.type, copied(change.obj)

    def compact(self) -> None:
        """Forget the history: older resource versions are answered with 410."""
        self._history.clear()

    # Writing

    @contextmanager
    def dry_run(self) -> Iterator[None]:
        """Within it, writes are checked and answered, but not done. Not across an await."""
        self._dry = True
        try:
            yield
        finally:
            self._dry = False

    def create(self, kind: Kind, obj: Obj, *, manager: str = "controllers") -> Obj:
        """Store a new object; a status is left out where the kind has one by subresource."""
        obj = self._new(kind, obj)
        track(kind, {}, obj, Owner(manager, "Update", ""), self._time())
        return self._insert(kind, obj)

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
        applied = copied(obj) if subresource else without_status(kind, copied(obj))
        live = self._objects[kind].get(key_of(applied, kind))
        merged = apply(kind, live or {}, applied, owner, force, self._time())
        new = self._over(kind, live, merged, subresource) if live else self._new(kind, merged)
        new["metadata"]["managedFields"] = merged["metadata"]["managedFields"]
        return (self._update(kind, live, new), False) if live else (self._insert(kind, new), True)

    def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        grace: int | None = None,
        propagation: str = "Background",
        uid: str = "",
        resource_version: str = "",
    ) -> Obj:
        """Delete an object, or begin to.

        A scheduled pod (one with spec.nodeName) that has not ended is marked with
        deletionTimestamp, and goes when it is deleted again with `grace` 0. Finalizers, and with
        propagation "Foreground" dependents, hold an object until they are gone.
        """
        live = self._live(kind, namespace, name)
        metadata = live["metadata"]
        for asked, there in (
            (uid, metadata["uid"]),
            (resource_version, metadata["resourceVersion"]),
        ):
            if asked and asked != there:
                why = f"in precondition: {asked}, in object meta: {there}"
                raise conflict(kind, name, f"Precondition failed: {why}")
        period = self._grace(kind, live, grace)
        new = copied(live)
        if "deletionTimestamp" not in metadata or period < metadata["deletionGracePeriodSeconds"]:
            new["metadata"]["deletionTimestamp"] = self._time(period)
            new["metadata"]["deletionGracePeriodSeconds"] = period
        if kind == kinds.NAMESPACE:
            new["status"] = {"phase": "Terminating"}
        if propagation == "Foreground" and FOREGROUND not in metadata.get("finalizers", []):
            new["metadata"].setdefault("finalizers", []).append(FOREGROUND)
        if propagation == "Orphan" and not self._dry:
            for other, dependent in self._dependents(metadata["uid"]):
                self._disinherit(other, dependent, metadata["uid"])
        return self._update(kind, live, new)

    # Parts of writes

    def _new(self, kind: Kind, obj: Obj) -> Obj:
        obj = without_status(kind, copied(obj))
        metadata = obj.setdefault("metadata", {})
        if kind.namespaced:
            metadata.setdefault("namespace", "default")
        else:
            metadata.pop("namespace", None)
        if "name" not in metadata and "generateName" in metadata:
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        for field in ("resourceVersion", "deletionTimestamp", "managedFields"):
            metadata.pop(field, None)
        obj = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        admit(kind, obj, None, self._cluster_ips)
        self._check_namespace(kind, metadata.get("namespace", ""), metadata["name"])
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = self._time()
        if "spec" in obj:
            metadata["generation"] = 1
        return obj

    def _insert(self, kind: Kind, obj: Obj) -> Obj:
        if key_of(obj) in self._objects[kind]:
            raise already_exists(kind, obj["metadata"]["name"])
        self._commit("ADDED", kind, obj, None)
        if kind == kinds.NAMESPACE and not self._dry:
            account = {"metadata": {"name": "default", "namespace": obj["metadata"]["name"]}}
            self.create(kinds.SERVICE_ACCOUNT, account)
        self._collect(kind, obj)
        return copied(obj)

    def _over(self, kind: Kind, live: Obj, obj: Obj, subresource: str) -> Obj:
        """What replacing `live` by `obj` stores, its revision and owners aside."""
        new, name = copied(obj), live["metadata"]["name"]
        for field, refusal in (("uid", "Precondition failed: UID"), ("resourceVersion", "")):
            asked = new["metadata"].get(field)
            if asked and asked != live["metadata"][field]:
                raise conflict(kind, name, refusal) if refusal else stale(kind, name)
        if subresource == "status":
            new = {**copied(live), "status": new.get("status", {})}
        elif kind not in kinds.STATELESS:
            new.pop("status", None)
            if "status" in live:
                new["status"] = copied(live["status"])
        for field in ("uid", "resourceVersion", "creationTimestamp", "generation", "namespace",
                      "deletionTimestamp", "deletionGracePeriodSeconds"):  # fmt: skip
            new["metadata"].pop(field, None)
            if field in live["metadata"]:
                new["metadata"][field] = live["metadata"][field]
        new.update(apiVersion=kind.api_version, kind=kind.kind)
        admit(kind, new, live, self._cluster_ips)
        check_update(kind, live, new)
        if "generation" in live["metadata"] and live.get("spec") != new.get("spec"):
            new["metadata"]["generation"] += 1
        return new

    def _update(self, kind: Kind, live: Obj, new: Obj) -> Obj:
        if _free(kind, new):
            self._remove(kind, new)
        elif new != live:
            self._commit("MODIFIED", kind, new, live)
            if "deletionTimestamp" in new["metadata"] and not self._dry:
                self._settle(kind, new)
        return copied(new)

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

    # Deletion and garbage collection

    def _settle(self, kind: Kind, obj: Obj) -> None:
        """Delete what holds an object that is to go; then the object, once nothing does."""
        uid = obj["metadata"]["uid"]
        if FOREGROUND in obj["metadata"].get("finalizers", []):
            for other, dependent in self._dependents(uid):
                if "deletionTimestamp" not in dependent["metadata"]:
                    self.delete(other, *key_of(dependent), propagation="Foreground")
            live = self._objects[kind].get(key_of(obj))
            if live and live["metadata"]["uid"] == uid and not self._dependents(uid):
                new = copied(live)
                new["metadata"]["finalizers"].remove(FOREGROUND)
                self._update(kind, live, new)
        elif kind == kinds.NAMESPACE:
            for other, held in self._held(obj["metadata"]["name"]):
                if "deletionTimestamp" not in held["metadata"]:
                    self.delete(other, *key_of(held))
            if key_of(obj) in self._objects[kind] and not self._held(obj["metadata"]["name"]):
                self._remove(kind, obj)

    def _remove(self, kind: Kind, obj: Obj) -> None:
        gone = copied(obj)
        self._commit("DELETED", kind, gone, self._objects[kind][key_of(obj)])
        if self._dry:
            return
        for other, dependent in self._dependents(gone["metadata"]["uid"]):
            self._collect(other, dependent)
        for owner in gone["metadata"].get("ownerReferences", []):
            for other, candidate in self._by_uid(owner["uid"]):
                if "deletionTimestamp" in candidate["metadata"]:
                    self._settle(other, candidate)
        name = gone["metadata"].get("namespace", "")
        namespace = self._objects[kinds.NAMESPACE].get(("", name))
        if namespace and "deletionTimestamp" in namespace["metadata"] and not self._held(name):
            self._settle(kinds.NAMESPACE, namespace)

    def _collect(self, kind: Kind, obj: Obj) -> None:
        """Delete an object whose owners are all gone."""
        owners = obj["metadata"].get("ownerReferences", [])
        gone = owners and not any(self._by_uid(owner["uid"]) for owner in owners)
        if gone and not self._dry and "deletionTimestamp" not in obj["metadata"]:
            self.delete(kind, *key_of(obj))

    def _disinherit(self, kind: Kind, dependent: Obj, uid: str) -> None:
        new = copied(dependent)
        owners = [one for one in new["metadata"]["ownerReferences"] if one["uid"] != uid]
        new["metadata"]["ownerReferences"] = owners
        self._update(kind, dependent, new)

    # Small questions

    def _live(self, kind: Kind, namespace: str, name: str) -> Obj:
        found = self._objects[kind].get((namespace if kind.namespaced else "", name))
        if found is None:
            raise not_found(kind, name)
        return found

    def _grace(self, kind: Kind, pod: Obj, asked: int | None) -> int:
        ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if kind != kinds.POD or ended or "nodeName" not in pod["spec"]:
            return 0
        period: int = pod["spec"]["terminationGracePeriodSeconds"] if asked is None else asked
        return period

    def _check_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        if not kind.namespaced:
            return
        found = self._live(kinds.NAMESPACE, "", namespace)
        if "deletionTimestamp" in found["metadata"]:
            why = f"namespace {namespace} because it is being terminated"
            raise forbidden(kind, name, f"unable to create new content in {why}")

    def _check_kept(self, revision: int) -> None:
        oldest = self.revision - len(self._history)
        if revision < oldest:
            raise expired(revision, oldest)

    def _dependents(self, uid: str) -> Found:
        return [
            (kind, obj)
            for kind, objects in self._objects.items()
            for obj in list(objects.values())
            if any(uid == owner["uid"] for owner in obj["metadata"].get("ownerReferences", []))
        ]

    def _held(self, namespace: str) -> Found:
        return [
            (kind, obj)
            for kind, objects in self._objects.items()
            for key, obj in list(objects.items())
            if key[0] == namespace
        ]

    def _by_uid(self, uid: str) -> Found:
        return [
            (kind, obj)
            for kind, objects in self._objects.items()
            for obj in objects.values()
            if obj["metadata"]["uid"] == uid
        ]

    def _time(self, later: int = 0) -> str:
        return f"{self._now() + timedelta(seconds=later):%Y-%m-%dT%H:%M:%SZ}"


def _free(kind: Kind, obj: Obj) -> bool:
    """True of an object that is to go and that nothing holds."""
    metadata = obj["metadata"]
    held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return "deletionTimestamp" in metadata and not held and kind != kinds.NAMESPACE


def key_of(obj: Obj, kind: Kind | None = None) -> Key:
    """Namespace and name; with a kind, an object's namespace may be left out."""
    metadata = obj["metadata"]
    if kind is None:
        return metadata.get("namespace", ""), metadata["name"]
    return (metadata.get("namespace", "default") if kind.namespaced else ""), metadata["name"]
