"""One request of the REST API, done on the store: no HTTP, no clock."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from tests.kube import kinds
from tests.kube.errors import ApiError, bad_request, not_found
from tests.kube.kinds import Kind
from tests.kube.patches import patched
from tests.kube.store import Obj, Store, key_of
from tests.kube.targets import Target
from tests.kube.watches import listed

APPLY = "application/apply-patch+yaml"


def perform(
    store: Store,
    verb: str,
    target: Target,
    query: Mapping[str, str],
    body: Any,
    content_type: str,
    manager: str,
) -> tuple[int, Obj]:
    """HTTP status and answer of any verb but watch."""
    kind, subresource = target.kind, target.subresource
    dry = query.get("dryRun") == "All" or (isinstance(body, dict) and body.get("dryRun") == ["All"])
    with store.dry_run() if dry else nullcontext():
        match verb:
            case "get":
                return 200, _view(target, _found(store, target))
            case "list":
                return 200, listed(store, target, query)
            case "create":
                return 201, store.create(kind, _checked(target, body), manager=manager)
            case "delete":
                _found(store, target)
                return 200, _delete(store, target, query, body)
            case "deletecollection":
                found = listed(store, target, query)
                for obj in found["items"]:
                    _delete(store, _of(kind, obj), query, body)
                return 200, found
            case "patch" if content_type == APPLY:
                if "fieldManager" not in query:
                    raise bad_request("fieldManager is required for apply patch")
                obj, new = store.apply(
                    kind,
                    _checked(target, body),
                    manager=manager,
                    force=query.get("force") in ("true", "1"),
                    subresource=subresource,
                )
                return (201 if new else 200), obj
        live = _found(store, target)
        if verb == "patch":
            body = patched(kind, _view(target, live), body, content_type)
        if subresource == "scale":
            live["spec"]["replicas"] = body.get("spec", {}).get("replicas", 0)
            return 200, _view(target, store.replace(kind, live, manager=manager))
        body = _checked(target, body)
        return 200, store.replace(kind, body, subresource=subresource, manager=manager)


def _found(store: Store, target: Target) -> Obj:
    kind, namespace, name, subresource = target
    known = subresource == "" or (subresource == "status" and kind not in kinds.STATELESS)
    if not known and not (subresource == "scale" and kind in kinds.SCALABLE):
        raise ApiError(404, "NotFound", "the server could not find the requested resource")
    if (found := store.get(kind, namespace or "", name)) is None:
        raise not_found(kind, name)
    return found


def _of(kind: Kind, obj: Obj) -> Target:
    return Target(kind, *key_of(obj), "")


def _checked(target: Target, body: Obj) -> Obj:
    """The body, with name and namespace of the path; 400 if it says others."""
    kind, metadata = target.kind, body.setdefault("metadata", {})
    expected = {"apiVersion": kind.api_version, "kind": kind.kind}
    for field, value in expected.items():
        if body.setdefault(field, value) != value:
            raise bad_request(f"the {field} in the data ({body[field]}) does not match {value}")
    if target.namespace and metadata.setdefault("namespace", target.namespace) != target.namespace:
        words = (
            "the namespace of the provided object does not match the namespace sent on the request"
        )
        raise bad_request(words)
    if target.name and metadata.setdefault("name", target.name) != target.name:
        words = f"the name of the object ({metadata['name']}) does not match the name on the URL"
        raise bad_request(f"{words} ({target.name})")
    return body


def _delete(store: Store, target: Target, query: Mapping[str, str], options: Obj) -> Obj:
    """The object if something holds it yet, else a Status that says it is gone."""
    kind, namespace, name, _ = target
    options = {**options, **query}
    grace = options.get("gracePeriodSeconds")
    preconditions = options.get("preconditions", {})
    gone = store.delete(
        kind,
        namespace or "",
        name,
        grace=None if grace is None else int(grace),
        propagation=options.get("propagationPolicy", "Background"),
        uid=preconditions.get("uid", ""),
        resource_version=preconditions.get("resourceVersion", ""),
    )
    if left := store.get(kind, namespace or "", name):
        return left
    details = {
        "name": name,
        "group": kind.group,
        "kind": kind.plural,
        "uid": gone["metadata"]["uid"],
    }
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": details}  # fmt: skip


def _view(target: Target, obj: Obj) -> Obj:
    """The object, or the Scale that its subresource shows of it."""
    if target.subresource != "scale":
        return obj
    labels = obj["spec"]["selector"].get("matchLabels", {})
    metadata = {k: v for k, v in obj["metadata"].items() if k != "managedFields"}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": obj["spec"]["replicas"]},
        "status": {
            "replicas": obj.get("status", {}).get("replicas", 0),
            "selector": ",".join(f"{key}={value}" for key, value in labels.items()),
        },
    }
