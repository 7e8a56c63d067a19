"""Objects in the form that a client asks for: as they are, metadata alone, or kubectl's tables."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tests.kube import kinds
from tests.kube.kinds import Kind

Obj = dict[str, Any]


def _ready(obj: Obj) -> str:
    states = obj.get("status", {}).get("containerStatuses", [])
    return f"{sum(state['ready'] for state in states)}/{len(obj['spec']['containers'])}"


def _restarts(obj: Obj) -> str:
    states = obj.get("status", {}).get("containerStatuses", [])
    return str(sum(state.get("restartCount", 0) for state in states))


def _phase(obj: Obj) -> str:
    deleted = "deletionTimestamp" in obj["metadata"]
    return "Terminating" if deleted else obj.get("status", {}).get("phase", "")


def _replicas(obj: Obj) -> str:
    return f"{obj.get('status', {}).get('readyReplicas', 0)}/{obj['spec']['replicas']}"


def _status(name: str) -> Callable[[Obj], str]:
    return lambda obj: str(obj.get("status", {}).get(name, 0))


_COLUMNS: dict[Kind, dict[str, Callable[[Obj], str]]] = {
    kinds.POD: {"Ready": _ready, "Status": _phase, "Restarts": _restarts},
    kinds.NAMESPACE: {"Status": _phase},
    kinds.DEPLOYMENT: {
        "Ready": _replicas,
        "Up-to-date": _status("updatedReplicas"),
        "Available": _status("availableReplicas"),
    },
    kinds.STATEFUL_SET: {"Ready": _replicas},
    kinds.SERVICE: {
        "Type": lambda obj: str(obj["spec"]["type"]),
        "Cluster-IP": lambda obj: str(obj["spec"].get("clusterIP", "<none>")),
    },
}


def represent(kind: Kind, obj: Obj, accept: str) -> Obj:
    """An object or list in the first form that the Accept header names."""
    items = obj.get("items")
    if "as=Table" in accept:
        return _table(kind, obj, [obj] if items is None else items)
    if "as=PartialObjectMetadata" in accept:
        if items is None:
            return _metadata(obj)
        kept = [_metadata(item) for item in items]
        return obj | _META | {"kind": "PartialObjectMetadataList", "items": kept}
    if items is not None and kind.built_in:
        bare = [
            {k: v for k, v in item.items() if k not in ("kind", "apiVersion")} for item in items
        ]
        return obj | {"items": bare}
    return obj


_META = {"apiVersion": "meta.k8s.io/v1"}


def _metadata(obj: Obj) -> Obj:
    return {"kind": "PartialObjectMetadata", **_META, "metadata": obj["metadata"]}


def _table(kind: Kind, obj: Obj, items: list[Obj]) -> Obj:
    columns = {"Name": lambda item: item["metadata"]["name"], **_COLUMNS.get(kind, {}), "Age": _age}
    return {
        "kind": "Table",
        **_META,
        "metadata": obj["metadata"] if "items" in obj else {},
        "columnDefinitions": [
            {"name": name, "type": "string", "format": "name" * (name == "Name")}
            for name in columns
        ],
        "rows": [
            {"cells": [cell(item) for cell in columns.values()], "object": _metadata(item)}
            for item in items
        ],
    }


def _age(obj: Obj) -> str:
    if "creationTimestamp" not in obj["metadata"]:
        return "<unknown>"  # of a bookmark
    since = datetime.fromisoformat(obj["metadata"]["creationTimestamp"])
    return f"{int((datetime.now(UTC) - since).total_seconds())}s"
