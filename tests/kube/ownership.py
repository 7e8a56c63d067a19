"""Who owns which fields: managed fields, and server-side apply on top of them.

A path is a tuple of path elements as in FieldsV1: "f:spec", 'k:{"name":"a"}', 'v:"x"'. An item of a
merged list is a path too, beside those of its fields. Simpler than the real server: maps are not
owned by themselves.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.kube.errors import ApiError
from tests.kube.kinds import Kind
from tests.kube.merging import Names, is_atomic, is_set, item_key, merge_keys

Obj = dict[str, Any]
Path = tuple[str, ...]

_OWNED_METADATA = {"labels", "annotations", "finalizers", "ownerReferences"}


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
    lost = (before.keys() - after.keys()) | (changed & before.keys())
    source = new if new["metadata"].get("managedFields") else live
    owners = {other: paths - lost for other, paths in _owners(source).items()}
    _write(kind, source, new, owners | {owner: owners.get(owner, set()) | changed}, time)


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
    owners = {other: paths - changed for other, paths in owners.items()}
    merged: Obj = _merge(kind, live, applied, ())
    held = {
        path[:end] for paths in owners.values() for path in paths for end in range(len(path) + 1)
    }
    for path in sorted(mine - wanted.keys() - held, key=len):
        if not _is_key(path):  # which goes with its item
            _remove(kind, merged, path, ())
    _write(kind, live, merged, owners | {owner: set(wanted)}, time)
    return merged


def _leaves(
    kind: Kind, value: Any, path: Path = (), names: Names = ()
) -> Iterator[tuple[Path, Any]]:
    """Each path of an object with its value; True for an item of a merged list."""
    if names in (("apiVersion",), ("kind",)):
        return
    if names[:1] == ("metadata",) and len(names) > 1 and names[1] not in _OWNED_METADATA:
        return
    if isinstance(value, dict) and value and not is_atomic(names):
        for name, inner in value.items():
            yield from _leaves(kind, inner, (*path, f"f:{name}"), (*names, name))
    elif isinstance(value, list) and merge_keys(kind, names):
        for item in value:
            here = (*path, _element(kind, item, names))
            yield here, True
            yield from _leaves(kind, item, here, names)
    elif isinstance(value, list) and is_set(names):
        yield from (((*path, _element(kind, item, names)), item) for item in value)
    elif len(path) > 1 or value != {}:
        yield path, value


def _merge(kind: Kind, live: Any, applied: Any, names: Names) -> Any:
    if isinstance(live, dict) and isinstance(applied, dict) and not is_atomic(names):
        merged = {n: _merge(kind, live.get(n), value, (*names, n)) for n, value in applied.items()}
        return live | merged
    if isinstance(live, list) and isinstance(applied, list):
        if is_set(names):
            return applied + [item for item in live if item not in applied]
        if merge_keys(kind, names):
            there = {_element(kind, item, names): item for item in live}
            return [
                _merge(kind, there.pop(_element(kind, item, names), None), item, names)
                for item in applied
            ] + list(there.values())
    return applied


def _remove(kind: Kind, value: Any, path: Path, names: Names) -> None:
    """Delete what is at a path, and the maps and lists that this leaves empty."""
    element, rest = path[0], path[1:]
    if element.startswith("f:"):
        field = element[2:]
        if rest and field in value:
            _remove(kind, value[field], rest, (*names, field))
        if not rest or value.get(field) in ({}, []):
            value.pop(field, None)
    else:
        for item in [item for item in value if _element(kind, item, names) == element]:
            if rest:
                _remove(kind, item, rest, names)
            else:
                value.remove(item)


def _element(kind: Kind, item: Any, names: Names) -> str:
    """The path element of a list's item."""
    keys = merge_keys(kind, names)
    return item_key(item, keys) if keys else f"v:{json.dumps(item)}"


def _is_key(path: Path) -> bool:
    return len(path) > 1 and path[-2].startswith("k:") and path[-1][2:] in json.loads(path[-2][2:])


def _owner(entry: Obj) -> Owner:
    return Owner(entry["manager"], entry["operation"], entry.get("subresource", ""))


def _owners(obj: Obj) -> Owners:
    """What the managed fields of an object say."""
    entries = obj.get("metadata", {}).get("managedFields", [])
    return {_owner(entry): set(_paths(entry.get("fieldsV1", {}))) for entry in entries}


def _paths(fields: Obj, path: Path = ()) -> Iterator[Path]:
    for element, inner in fields.items():
        if element == ".":
            yield from [path] if path[-1].startswith("k:") else []
        elif inner:
            yield from _paths(inner, (*path, element))
        else:
            yield (*path, element)


def _write(kind: Kind, old: Obj, new: Obj, owners: Owners, time: str) -> None:
    """Put the managed fields into `new`; who owns what it owned in `old` keeps its time."""
    before = _owners(old)
    entries = {_owner(entry): entry for entry in old.get("metadata", {}).get("managedFields", [])}
    new["metadata"]["managedFields"] = [
        entries[owner] if before.get(owner) == paths else _entry(kind, owner, paths, time)
        for owner, paths in sorted(owners.items())
        if paths
    ]


def _entry(kind: Kind, owner: Owner, paths: set[Path], time: str) -> Obj:
    fields: Obj = {}
    for path in sorted(paths):
        node = fields
        for element in path:
            node = node.setdefault(element, {})
        if path[-1].startswith("k:"):
            node["."] = {}
    rest = {"apiVersion": kind.api_version, "time": time, "fieldsType": "FieldsV1"}
    named = {field: value for field, value in owner._asdict().items() if value}
    return {**named, **rest, "fieldsV1": fields}


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
    words = "\n".join(f"{cause['message']}: {cause['field']}" for cause in causes)
    plural = "s" * (len(causes) > 1)
    message = f"Apply failed with {len(causes)} conflict{plural}: {words}"
    return ApiError(409, "Conflict", message, causes=causes)
