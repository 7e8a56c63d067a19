"""Who owns which fields: managed fields, and server-side apply on top of them.

A path is a tuple of path elements as in FieldsV1: "f:spec", 'k:{"name":"a"}', 'v:"x"'. An item of a
merged list is a path too, beside those of its fields. Simpler than the real server: maps are not
owned by themselves, and what the server defaults belongs to nobody.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.kube.errors import ApiError
from tests.kube.kinds import Kind
from tests.kube.merging import Names, is_atomic, is_set, item_key, merge_keys

Obj = dict[str, Any]
Path = tuple[str, ...]

_UNOWNED = frozenset(
    {("f:apiVersion",), ("f:kind",)}
    | {
        ("f:metadata", f"f:{field}")
        for field in (
            *("name", "namespace", "generateName", "uid", "resourceVersion", "generation"),
            *("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
            *("managedFields", "selfLink"),
        )
    }
)


class Owner(NamedTuple):
    """`operation` is Apply or Update; `subresource` "" or "status"."""

    manager: str
    operation: str
    subresource: str


Owners = dict[Owner, set[Path]]


def track(kind: Kind, live: Obj, new: Obj, owner: Owner, time: str) -> None:
    """Write into `new` that `owner` changed it from `live` by an update."""
    before, after = dict(_leaves(kind, live)), dict(_leaves(kind, new))
    changed = {path for path, value in after.items() if before.get(path, _leaves) != value}
    source = new if new["metadata"].get("managedFields") else live
    owners = _owners(source)
    lost = (before.keys() - after.keys()) | (changed & before.keys())
    owners = {other: paths - lost for other, paths in owners.items()}
    owners[owner] = owners.get(owner, set()) | changed
    _write(kind, source, new, owners, time)


def apply(kind: Kind, live: Obj, applied: Obj, owner: Owner, force: bool, time: str) -> Obj:
    """`live` with what `applied` says, without what its owner alone said before and does not now.

    Raises:
        ApiError: 409 when others own fields that would change, unless `force`.
    """
    before, wanted = dict(_leaves(kind, live)), dict(_leaves(kind, applied))
    changed = {path for path in wanted.keys() & before.keys() if wanted[path] != before[path]}
    owners = _owners(live)
    mine = owners.pop(owner, set())
    conflicts = {other: paths & changed for other, paths in owners.items() if paths & changed}
    if conflicts and not force:
        raise _conflict(conflicts)
    for other in conflicts:
        owners[other] -= changed
    merged: Obj = _merge(kind, live, applied, ())
    held = {
        path[:end] for paths in owners.values() for path in paths for end in range(len(path) + 1)
    }
    for path in sorted(mine - wanted.keys() - held, key=len):
        _remove(kind, merged, path, ())
    _write(kind, live, merged, {**owners, owner: set(wanted)}, time)
    return merged


def _leaves(
    kind: Kind, value: Any, path: Path = (), names: Names = ()
) -> Iterator[tuple[Path, Any]]:
    """Each path of an object with its value; True for an item of a merged list."""
    if path in _UNOWNED:
        return
    keys = merge_keys(kind, names) if isinstance(value, list) else ()
    if isinstance(value, dict) and value and not is_atomic(names):
        for name, inner in value.items():
            yield from _leaves(kind, inner, (*path, f"f:{name}"), (*names, name))
    elif keys:
        for item in value:
            here = (*path, item_key(item, keys))
            yield here, True
            yield from _leaves(kind, item, here, names)
    elif isinstance(value, list) and is_set(names):
        yield from (((*path, f"v:{json.dumps(item)}"), item) for item in value)
    elif path and path != ("f:metadata",):
        yield path, value


def _merge(kind: Kind, live: Any, applied: Any, names: Names) -> Any:
    if isinstance(live, dict) and isinstance(applied, dict) and not is_atomic(names):
        return live | {
            name: _merge(kind, live.get(name), value, (*names, name))
            for name, value in applied.items()
        }
    if not (isinstance(live, list) and isinstance(applied, list)):
        return applied
    if is_set(names):
        return applied + [item for item in live if item not in applied]
    if keys := merge_keys(kind, names):
        there = {item_key(item, keys): item for item in live}
        items = [_merge(kind, there.pop(item_key(i, keys), None), i, names) for i in applied]
        return items + list(there.values())
    return applied


def _remove(kind: Kind, value: Any, path: Path, names: Names) -> None:
    """Delete what is at a path, and the maps and lists that this leaves empty."""
    element, rest = path[0], path[1:]
    if element.startswith("f:"):
        inner = value.get(element[2:])
        names = (*names, element[2:])
        if rest and inner is not None:
            _remove(kind, inner, rest, names)
        if not rest or inner in ({}, []):
            value.pop(element[2:], None)
    elif element.startswith("v:"):
        value[:] = [item for item in value if f"v:{json.dumps(item)}" != element]
    else:
        keys = merge_keys(kind, names)
        found = [item for item in value if item_key(item, keys) == element]
        for item in found:
            if rest:
                _remove(kind, item, rest, names)
        if not rest:
            value[:] = [item for item in value if item not in found]


def _owners(obj: Obj) -> Owners:
    """What the managed fields of an object say."""
    entries = obj.get("metadata", {}).get("managedFields", [])
    return {
        Owner(e["manager"], e["operation"], e.get("subresource", "")): set(_paths(e["fieldsV1"]))
        for e in entries
        if "fieldsV1" in e
    }


def _paths(fields: Obj, path: Path = ()) -> Iterator[Path]:
    for element, inner in fields.items():
        if element == "." and path[-1].startswith("k:"):
            yield path
        elif inner:
            yield from _paths(inner, (*path, element))
        elif element != ".":
            yield (*path, element)


def _write(kind: Kind, old: Obj, new: Obj, owners: Owners, time: str) -> None:
    """Put the managed fields into `new`; who owns what it owned in `old` keeps its time."""
    before = _owners(old)
    times = {
        Owner(e["manager"], e["operation"], e.get("subresource", "")): e.get("time", time)
        for e in old.get("metadata", {}).get("managedFields", [])
    }
    new["metadata"]["managedFields"] = [
        {
            "manager": owner.manager,
            "operation": owner.operation,
            "apiVersion": kind.api_version,
            "time": times[owner] if before.get(owner) == paths else time,
            "fieldsType": "FieldsV1",
            "fieldsV1": _fields(paths),
            **({"subresource": owner.subresource} if owner.subresource else {}),
        }
        for owner, paths in sorted(owners.items())
        if paths
    ]


def _fields(paths: set[Path]) -> Obj:
    fields: Obj = {}
    for path in sorted(paths):
        node = fields
        for element in path:
            node = node.setdefault(element, {})
        if path[-1].startswith("k:"):
            node["."] = {}
    return fields


def _conflict(conflicts: Owners) -> ApiError:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f'conflict with "{other.manager}"',
            "field": "".join(f".{e[2:]}" if e[0] == "f" else f"[{e[2:]}]" for e in path),
        }
        for other, paths in conflicts.items()
        for path in sorted(paths)
    ]
    plural = "s" * (len(causes) > 1)
    words = "\n".join(f"- {cause['message']}: {cause['field']}" for cause in causes)
    message = f"Apply failed with {len(causes)} conflict{plural}: {words}"
    return ApiError(409, "Conflict", message, {"causes": causes})
