"""How lists and maps of objects merge: by which keys, or as a whole.

The schema of the real server says so for each field; here are the fields that charts and clients
merge. All else that is a list is replaced as a whole.
"""

import json
from typing import Any

from tests.kube.kinds import Kind

Names = tuple[str, ...]  # field names on the way to a value, without list items

_KEYS: dict[Names, Names] = {
    ("containers",): ("name",),
    ("initContainers",): ("name",),
    ("env",): ("name",),
    ("volumes",): ("name",),
    ("volumeMounts",): ("mountPath",),
    ("volumeDevices",): ("devicePath",),
    ("imagePullSecrets",): ("name",),
    ("hostAliases",): ("ip",),
    ("topologySpreadConstraints",): ("topologyKey", "whenUnsatisfiable"),
    ("ownerReferences",): ("uid",),
    ("conditions",): ("type",),
    ("containers", "ports"): ("containerPort", "protocol"),
    ("initContainers", "ports"): ("containerPort", "protocol"),
    ("spec", "ports"): ("port", "protocol"),
}
_SETS = frozenset({("metadata", "finalizers"), ("endpoints", "addresses")})
_ATOMIC_MAPS = frozenset(
    {"selector", "labelSelector", "matchLabels", "resourceFieldRef", "fieldRef"}
)
_DEFAULTS = {"protocol": "TCP"}


def merge_keys(kind: Kind, names: Names) -> Names:
    """The fields that tell the items of a list apart; () of a list that is replaced as a whole."""
    if not kind.built_in and names[:1] != ("metadata",):
        return ()
    if names[-2:] == ("spec", "ports") and kind.kind != "Service":
        return ()
    return _KEYS.get(names[-2:]) or _KEYS.get(names[-1:]) or ()


def is_set(names: Names) -> bool:
    """True of a list of scalars to which several owners add."""
    return names[-2:] in _SETS


def is_atomic(names: Names) -> bool:
    """True of a map that has one owner as a whole."""
    return names[-1:] != () and names[-1] in _ATOMIC_MAPS


def item_key(item: dict[str, Any], keys: Names) -> str:
    """An item's path element in managed fields: 'k:{"containerPort":80,"protocol":"TCP"}'."""
    values = {key: item.get(key, _DEFAULTS.get(key)) for key in sorted(keys)}
    return "k:" + json.dumps(values, separators=(",", ":"))
