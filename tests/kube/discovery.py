"""What the server says about itself: version, groups, resources, and OpenAPI without schemas.

OpenAPI says only that patches take `fieldValidation`, so that clients leave validation to the
server (which does none). Aggregated discovery is not offered; clients fall back to the lists.
"""

from typing import Any

from tests.kube.kinds import KINDS, SCALABLE, Kind

Obj = dict[str, Any]

VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.0", "platform": "linux/amd64"}
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]

_PATHS = {
    f"apis/{version}" if "/" in version else f"api/{version}": version
    for version in dict.fromkeys(kind.api_version for kind in KINDS)
}


def answer(path: str) -> Obj | None:
    """The document at a path of discovery; None of other paths."""
    path = path.strip("/")
    prefix = path.removeprefix("openapi/v3/")
    members = [kind for kind in KINDS if kind.api_version == _PATHS.get(prefix)]
    if path == "version":
        return VERSION
    if path == "api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "apis":
        groups = [_group(version) for version in _PATHS.values() if "/" in version]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    if path == "openapi/v3":
        return {"paths": {each: {"serverRelativeURL": f"/openapi/v3/{each}"} for each in _PATHS}}
    if prefix not in _PATHS:
        return None
    if prefix != path:
        patches = {f"/{kind.plural}/{{name}}": _patch(kind) for kind in members}
        info = {"title": "Kubernetes", "version": "1"}
        return {"openapi": "3.0.0", "info": info, "paths": patches}
    resources = [one for kind in members for one in _resources(kind)]
    head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": _PATHS[prefix]}
    return {**head, "resources": resources}


def _group(group_version: str) -> Obj:
    group, version = group_version.split("/")
    preferred = {"groupVersion": group_version, "version": version}
    return {"name": group, "versions": [preferred], "preferredVersion": preferred}


def _resources(kind: Kind) -> list[Obj]:
    common = {"singularName": kind.kind.lower(), "namespaced": kind.namespaced, "verbs": VERBS}
    names = {"kind": kind.kind, "shortNames": [kind.short] if kind.short else []}
    found = [{"name": kind.plural, **names, **common}]
    found.append({"name": f"{kind.plural}/status", "kind": kind.kind, **common})
    if kind in SCALABLE:
        scale = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        found.append({"name": f"{kind.plural}/scale", **scale, **common})
    return found


def _patch(kind: Kind) -> Obj:
    version = kind.api_version.rpartition("/")[2]
    named = {"group": kind.group, "version": version, "kind": kind.kind}
    parameters = [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}]
    return {"patch": {"parameters": parameters, "x-kubernetes-group-version-kind": named}}
