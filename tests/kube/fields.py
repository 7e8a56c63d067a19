"""Objects as fields, each a path with a value: how server-side apply and patches see them.

Maps are taken apart, and those lists whose items have a key; any other list is one value. The item
of such a list is a field by itself, whose value is its key. The real server's schema says which
lists have keys; here are those that charts and clients merge.
"""

import json
from collections.abc import Iterator
from typing import Any

from tests.kube.errors import ApiError

Obj = dict[str, Any]
Path = tuple[str, ...]
Fields = dict[Path, Any]
Owners = dict[tuple[str, str], set[Path]]
"""What each manager owns by each operation, Apply or Update."""

_KEYS = {
    **dict.fromkeys(("containers", "initContainers", "env", "volumes"), ("name",)),
    "imagePullSecrets": ("name",),
    "volumeMounts": ("mountPath",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "conditions": ("type",),
}
_OWNED_METADATA = ("labels", "annotations")


def fields_of(value: Any, *, keyed: bool = True) -> Fields:
    """The fields of an object; with `keyed` False every list is one value."""
    return dict(_fields(value, (), keyed))


def _fields(value: Any, path: Path, keyed: bool) -> Iterator[tuple[Path, Any]]:
    parts: dict[str, Any] = {}
    if isinstance(value, dict):
        parts = value
    elif isinstance(value, list) and keyed and path:
        for item in value:
            if key := _key(path[-1], item):
                element = f"[{','.join(f'{name}={json.dumps(key[name])}' for name in key)}]"
                yield (*path, element), key
                parts[element] = {name: inner for name, inner in item.items() if name not in key}
    for name, inner in parts.items():
        if inner != {} or not name.startswith("["):
            yield from _fields(inner, (*path, name), keyed)
    if not parts:
        yield path, value


def _key(name: str, item: Any) -> Obj:
    """What tells an item of the list `name` from others; empty if nothing does."""
    if name == "ports":  # of containers and of Services
        number = "containerPort" if "containerPort" in item else "port"
        return {number: item[number], "protocol": item.get("protocol", "TCP")}
    return {key: item[key] for key in _KEYS.get(name, ())}


def object_of(fields: Fields) -> Any:
    """What has these fields."""
    parts: dict[str, Fields] = {}
    for path, value in fields.items():
        if path:
            parts.setdefault(path[0], {})[path[1:]] = value
    if not parts:
        return fields[()]
    values = {name: object_of(part) for name, part in parts.items()}
    if next(iter(values)).startswith("["):
        return list(values.values())
    key = fields.get(())
    return (key if isinstance(key, dict) else {}) | values


def apply(
    live: Obj, applied: Obj, owners: Owners, manager: str, *, force: bool
) -> tuple[Obj, Owners]:
    """Server-side apply: `live` with what is applied, without what only its manager had applied.

    Raises:
        ApiError: 409 when others own fields that would change, unless `force`.
    """
    before, given, wanted = fields_of(live), fields_of(applied), _ownable(applied)
    others = dict(owners)
    mine = others.pop((manager, "Apply"), set())
    changed = {path for path in wanted.keys() & before.keys() if wanted[path] != before[path]}
    conflicts = {who: paths & changed for (who, _), paths in others.items() if paths & changed}
    if conflicts and not force:
        raise _conflict(conflicts)
    others = {owner: paths - changed for owner, paths in others.items()}
    held = {path[:n] for paths in others.values() for path in paths for n in range(len(path) + 1)}
    gone = mine - wanted.keys() - held
    kept = {path: before[path] for path in before if path not in gone and path not in given}
    return object_of(given | kept), others | {(manager, "Apply"): set(wanted)}


def updated(live: Obj, new: Obj, owners: Owners, manager: str) -> Owners:
    """The owners after a manager has replaced `live` by `new`."""
    before, after = _ownable(live), _ownable(new)
    changed = {path for path in after if path not in before or after[path] != before[path]}
    lost = changed | (before.keys() - after.keys())
    left = {owner: paths - lost for owner, paths in owners.items()}
    return left | {(manager, "Update"): left.get((manager, "Update"), set()) | changed}


def patched(live: Obj, patch: Obj, content_type: str) -> Obj:
    """`live` with a patch applied: a merge patch, or a strategic one, which merges lists by keys.

    Of the directives of strategic merge only `$patch: delete` counts.
    """
    known = {f"application/{name}-patch+json": name for name in ("merge", "strategic-merge")}
    if content_type not in known:
        words = f"accepted media types of patches include: {', '.join(known)}"
        raise ApiError(415, "UnsupportedMediaType", words)
    fields = fields_of(live)
    for path, value in fields_of(patch, keyed=known[content_type] != "merge").items():
        directive = any(name.startswith("$") for name in path)
        if isinstance(value, dict):
            fields.setdefault(path, value)
        elif path[-1] == "$patch" or not directive:
            place = path[:-1] if directive else path
            fields = {other: v for other, v in fields.items() if other[: len(place)] != place}
            fields |= {} if directive or value is None else {path: value}
    return dict(object_of(fields))


def _ownable(obj: Obj) -> Fields:
    """The fields that have owners here: those of specs and data, labels and annotations."""
    metadata = {n: v for n, v in obj.get("metadata", {}).items() if n in _OWNED_METADATA}
    rest = {n: v for n, v in obj.items() if n not in ("apiVersion", "kind", "metadata", "status")}
    return fields_of(rest | ({"metadata": metadata} if metadata else {}))


def _conflict(conflicts: dict[str, set[Path]]) -> ApiError:
    words = [
        f'conflict with "{manager}": '
        + "".join(name if name.startswith("[") else f".{name}" for name in path)
        for manager, paths in conflicts.items()
        for path in sorted(paths)
    ]
    message = f"Apply failed with {len(words)} conflicts: {'; '.join(words)}"
    return ApiError(409, "Conflict", message)
