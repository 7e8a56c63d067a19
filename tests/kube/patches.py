"""The patch formats that are computed from the live object: JSON, merge and strategic merge."""

import json
from typing import Any

from tests.kube.errors import ApiError, bad_request
from tests.kube.kinds import Kind
from tests.kube.merging import Names, item_key, merge_keys

Obj = dict[str, Any]

_DELETIONS = "$deleteFromPrimitiveList/"


def patched(kind: Kind, live: Obj, patch: Any, content_type: str) -> Obj:
    """`live`, which may be changed, with a patch applied.

    Of JSON patches `add`, `replace`, `remove` and `test`; of the directives of strategic merge
    `$patch` and `$deleteFromPrimitiveList` (others, which are about order, are ignored).
    """
    match content_type:
        case "application/json-patch+json":
            for operation in patch:
                _operate(live, **operation)
            return live
        case "application/merge-patch+json":
            return dict(_merged(None, live, patch, ()))
        case "application/strategic-merge-patch+json" if kind.built_in:
            return dict(_merged(kind, live, patch, ()))
    accepted = "application/json-patch+json, application/merge-patch+json"
    words = f"the body of the request was in an unknown format - accepted media types: {accepted}"
    raise ApiError(415, "UnsupportedMediaType", words)


def _merged(kind: Kind | None, live: Any, patch: Any, names: Names) -> Any:
    """With a kind a strategic merge, in which the items of some lists merge; else a plain one."""
    if not isinstance(patch, dict):
        keys = merge_keys(kind, names)[:1] if kind and isinstance(patch, list) else ()
        return _items(kind, live or [], patch, names, keys) if kind and keys else patch
    if kind and patch.get("$patch") == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    result = live if isinstance(live, dict) else {}
    for name, value in patch.items():
        if kind and name.startswith(_DELETIONS):
            field = name.removeprefix(_DELETIONS)
            result[field] = [item for item in result.get(field, []) if item not in value]
        elif value is None:
            result.pop(name, None)
        elif not (kind and name.startswith("$")):
            result[name] = _merged(kind, result.get(name), value, (*names, name))
    return result


def _items(kind: Kind, live: list[Obj], patch: list[Obj], names: Names, keys: Names) -> list[Obj]:
    there = {item_key(item, keys): item for item in live}
    for item in patch:
        key = item_key(item, keys)
        if item.get("$patch") == "delete":
            there.pop(key, None)
        else:
            there[key] = _merged(kind, there.get(key), item, names)
    return list(there.values())


def _operate(document: Any, op: str, path: str, value: Any = None) -> None:
    """One operation of a JSON patch (RFC 6902)."""
    *steps, last = [s.replace("~1", "/").replace("~0", "~") for s in path.split("/")[1:]]
    try:
        for step in steps:
            document = document[int(step) if isinstance(document, list) else step]
        place: Any = last
        if isinstance(document, list):
            place = len(document) if last == "-" else int(last)
        match op:
            case "add" if isinstance(document, list):
                document.insert(place, value)
            case "add":
                document[place] = value
            case "replace":
                document[place] = (document[place], value)[1]  # what is not there has no place
            case "remove":
                del document[place]
            case "test" if document[place] != value:
                found = json.dumps(document[place])
                raise ApiError(422, "Invalid", f"testing {path} failed: found {found}")
            case "test":
                pass
            case _:
                raise bad_request(f"operation {op!r} of JSON patches is not supported here")
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ApiError(
            422, "Invalid", f"the path of the JSON patch is not there: {path}"
        ) from error
