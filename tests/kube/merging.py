"""How lists and maps of objects merge: by which keys, or as a whole.

The schema of the real server says so for each field; here are the fields that charts and clients
merge. Any other list is replaced as a whole.
"""

import json
from typing import Any

from tests.kube.kinds import Kind

Names = tuple[str, ...]  # field names on the way to a value, without list items

_KEYS: dict[str, Names] = {
    **dict.fromkeys(("containers", "initContainers", "env", "volumes"), ("name",)),
    "imagePullSecrets": ("name",),
    "volumeMounts": ("mountPath",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "ownerReferences": ("uid",),
    "conditions": ("type",),
}
_PORTS = {"containers": "containerPort", "initContainers": "containerPort", "spec": "port"}
_ATOMIC_MAPS = frozenset({"selector", "labelSelector", "namespaceSelector", "podSelector"})


def merge_keys(kind: Kind, names: Names) -> Names:
    """The fields that tell the items of a list apart; () of a list that is replaced as a whole."""
    if not kind.built_in and names[:1] != ("metadata",):
        return ()
    if names[1:] and names[-1] == "ports" and (names[-2] != "spec" or kind.kind == "Service"):
        return (_PORTS[names[-2]], "protocol") if names[-2] in _PORTS else ()
    return _KEYS.get(names[-1], ()) if names else ()


def is_set(names: Names) -> bool:
    """True of a list of scalars to which several owners add."""
    return names == ("metadata", "finalizers")


def is_atomic(names: Names) -> bool:
    """True of a map that has one owner as a whole."""
    return bool(names) and names[-1] in _ATOMIC_MAPS


def item_key(item: dict[str, Any], keys: Names) -> str:
    """An item's path element in managed fields: 'k:{"containerPort":80,"protocol":"TCP"}'."""
    values = {key: item.get(key, "TCP" if key == "protocol" else None) for key in sorted(keys)}
    return "k:" + json.dumps(values, separators=(",", ":"))
