"""One request of the REST API, done on the store: no HTTP, no clock."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.kube import kinds
from tests.kube.errors import ApiError, not_found
from tests.kube.fields import patched
from tests.kube.kinds import KINDS, Kind
from tests.kube.selectors import selector_of
from tests.kube.store import Obj, Store, key_of

APPLY = "application/apply-patch+yaml"
_PATHS = {(kind.api_version, kind.plural): kind for kind in KINDS}


class Target(NamedTuple):
    """What a path names; `namespace` None means all of them, `name` "" the collection."""

    kind: Kind
    namespace: str | None
    name: str
    subresource: str


def target_of(path: str) -> Target:
    """That of "/apis/apps/v1/namespaces/a/deployments/b/status"; 404 of what is not served."""
    root, *steps = path.strip("/").split("/")
    cut = 1 if root == "api" else 2
    version, rest = "/".join(steps[:cut]), [*steps[cut:], "", "", ""]
    namespace = None
    if rest[0] == "namespaces" and rest[2] not in ("", "status"):
        namespace, rest = rest[1], rest[2:]
    kind = _PATHS.get((version, rest[0]))
    name, subresource = rest[1:3]
    known = {"": True, "status": True, "scale": kind in kinds.SCALABLE, "log": kind == kinds.POD}
    if kind is None or not known.get(subresource):
        raise ApiError(404, "NotFound", "the server could not find the requested resource")
    return Target(kind, namespace, name, subresource)


def verb_of(method: str, target: Target, query: Mapping[str, str]) -> str:
    """The verb that Roles allow or not."""
    if method == "GET" and query.get("watch") in ("1", "true"):
        return "watch"
    of_one = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
    of_all = {"GET": "list", "POST": "create"}
    if verb := (of_one if target.name else of_all).get(method):
        return verb
    words = "the server does not allow this method on the requested resource"
    raise ApiError(405, "MethodNotAllowed", words)


def perform(
    store: Store, verb: str, target: Target, query: Mapping[str, str], body: Any, content_type: str
) -> tuple[Obj, int]:
    """Answer and HTTP status of a request on one object."""
    kind, subresource, manager = target.kind, target.subresource, query["fieldManager"]
    if "dryRun" in query or "dryRun" in body:
        raise ApiError(400, "BadRequest", "this server has no dry run")
    if verb == "create":
        return store.create(kind, _named(target, body), manager=manager), 201
    if verb == "patch" and content_type == APPLY:
        force = query.get("force") == "true"
        obj, new = store.apply(kind, _named(target, body), manager=manager, force=force)
        return obj, 201 if new else 200
    if (live := store.get(kind, target.namespace or "", target.name)) is None:
        raise not_found(kind, target.name)
    if verb == "get":
        return _view(target, live), 200
    if verb == "delete":
        return _delete(store, kind, live, {**body, **query}.get("gracePeriodSeconds")), 200
    if verb == "patch":
        body = patched(_view(target, live), body, content_type)
    if subresource == "scale":
        live["spec"]["replicas"] = body["spec"].get("replicas", 0)
        return _view(target, store.replace(kind, live, manager=manager)), 200
    body = _named(target, body)
    return store.replace(kind, body, subresource=subresource, manager=manager), 200


def _delete(store: Store, kind: Kind, obj: Obj, grace: str | int | None) -> Obj:
    """The object if it is yet to go, else a Status that says it is gone."""
    store.delete(kind, *key_of(obj), grace=None if grace is None else int(grace))
    if left := store.get(kind, *key_of(obj)):
        return left
    uid, name = obj["metadata"]["uid"], obj["metadata"]["name"]
    details = {"name": name, "group": kind.group, "kind": kind.plural, "uid": uid}
    return {"kind": "Status", "apiVersion": "v1", "status": "Success", "details": details}


def _named(target: Target, body: Obj) -> Obj:
    """The body, with the namespace and name of the path."""
    named = {"namespace": target.namespace, "name": target.name}
    metadata = body.get("metadata", {})
    return body | {"metadata": metadata | {field: v for field, v in named.items() if v}}


def _view(target: Target, obj: Obj) -> Obj:
    """The object, or the Scale that its subresource shows of it."""
    if target.subresource != "scale":
        return obj
    selector = selector_of(obj["spec"]["selector"]["matchLabels"])
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": obj["metadata"],
        "spec": {"replicas": obj["spec"]["replicas"]},
        "status": {"replicas": obj.get("status", {}).get("replicas", 0), "selector": selector},
    }
