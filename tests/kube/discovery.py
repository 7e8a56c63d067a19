"""What the server says about itself: version, groups, resources and OpenAPI.

OpenAPI has no schemas: it says that patches take `fieldValidation`, so that clients leave the
validation to the server (which does none).
"""

from itertools import groupby
from typing import Any

from tests.kube.kinds import KINDS, SCALABLE, SHORT_NAMES, STATELESS, Kind

Obj = dict[str, Any]

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.0", "platform": "linux/amd64"}
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]

_GROUPS = {
    group: list(members)
    for group, members in groupby(
        sorted(KINDS, key=lambda kind: kind.group), key=lambda kind: (kind.group, kind.version)
    )
}


def answer(path: str, accept: str) -> tuple[Obj, str] | None:
    """The document at a path of discovery and its content type; None of other paths."""
    steps = path.strip("/").split("/")
    plain = "application/json"
    if path in ("/api", "/apis") and AGGREGATED in accept.replace(" ", ""):
        return _aggregated(core=path == "/api"), AGGREGATED
    match steps:
        case ["version"]:
            return VERSION, plain
        case ["healthz" | "livez" | "readyz"]:
            return {}, plain
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}, plain
        case ["apis"]:
            groups = [_group(group, version) for group, version in _GROUPS if group]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}, plain
        case ["apis", group]:
            for name, version in _GROUPS:
                if name == group:
                    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, version)}, plain
        case ["api", version] if ("", version) in _GROUPS:
            return _resources("", version), plain
        case ["apis", group, version] if (group, version) in _GROUPS:
            return _resources(group, version), plain
        case ["openapi", "v3"]:
            paths = {_prefix(*key): {"serverRelativeURL": f"/openapi/v3/{_prefix(*key)}"}
                     for key in _GROUPS}  # fmt: skip
            return {"paths": paths}, plain
        case ["openapi", "v3", *prefix]:
            for key, members in _GROUPS.items():
                if _prefix(*key) == "/".join(prefix):
                    return _openapi(members), plain
    return None


def _prefix(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _group(group: str, version: str) -> Obj:
    preferred = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [preferred], "preferredVersion": preferred}


def _subresources(kind: Kind) -> list[tuple[str, Obj]]:
    scale = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    own = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    return [("status", own)] * (kind not in STATELESS) + [("scale", scale)] * (kind in SCALABLE)


def _resources(group: str, version: str) -> Obj:
    resources: list[Obj] = []
    for kind in _GROUPS[group, version]:
        resources.append(
            {
                "name": kind.plural,
                "singularName": kind.kind.lower(),
                "namespaced": kind.namespaced,
                "kind": kind.kind,
                "verbs": VERBS,
                "shortNames": SHORT_NAMES.get(kind, []),
            }
        )
        resources += [
            {"name": f"{kind.plural}/{name}", "singularName": "", "verbs": ["get", "patch", "update"],
             "namespaced": kind.namespaced, **response}
            for name, response in _subresources(kind)
        ]  # fmt: skip
    api_version = f"{group}/{version}" if group else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api_version,
        "resources": resources,
    }


def _aggregated(*, core: bool) -> Obj:
    items = [
        {
            "metadata": {"name": group},
            "versions": [
                {
                    "version": version,
                    "freshness": "Current",
                    "resources": [_discovered(k) for k in found],
                }
            ],
        }
        for (group, version), found in _GROUPS.items()
        if core == (not group)
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _discovered(kind: Kind) -> Obj:
    return {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.kind.lower(),
        "shortNames": SHORT_NAMES.get(kind, []),
        "verbs": VERBS,
        "subresources": [
            {"subresource": name, "responseKind": response, "verbs": ["get", "patch", "update"]}
            for name, response in _subresources(kind)
        ],
    }


def _openapi(members: list[Kind]) -> Obj:
    parameters = [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}]
    paths = {
        f"/{_prefix(kind.group, kind.version)}/{kind.plural}/{{name}}": {
            "patch": {
                "parameters": parameters,
                "responses": {},
                "x-kubernetes-group-version-kind": {
                    "group": kind.group, "version": kind.version, "kind": kind.kind
                },
            }
        }
        for kind in members
    }  # fmt: skip
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "1"}, "paths": paths}
