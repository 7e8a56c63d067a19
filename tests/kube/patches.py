"""The patch formats that are computed from the live object: JSON, merge and strategic merge."""

import copy
from typing import Any

from tests.kube.errors import ApiError, bad_request
from tests.kube.kinds import Kind
from tests.kube.merging import Names, item_key, merge_keys

Obj = dict[str, Any]

_ORDER, _PRIMITIVES, _RETAIN = "$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys"


def patched(kind: Kind, live: Obj, patch: Any, content_type: str) -> Obj:
    """`live` with a patch of one of the three formats applied."""
    live = copy.deepcopy(live)
    match content_type:
        case "application/json-patch+json":
            for operation in patch:
                live = _operate(live, operation)
            return live
        case "application/merge-patch+json":
            result: Obj = _merged(live, patch)
            return result
        case "application/strategic-merge-patch+json" if kind.built_in:
            return _strategic(kind, live, patch, ())
    words = "the body of the request was in an unknown format - accepted media types include: "
    accepted = (
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    )
    raise ApiError(415, "UnsupportedMediaType", words + accepted)


def _merged(live: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = live if isinstance(live, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), value)
    return result


def _strategic(kind: Kind, live: Any, patch: Obj, names: Names) -> Obj:
    """Merge a map: lists with merge keys item by item, as `$patch` and its siblings say."""
    if patch.get("$patch") == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    result = live if isinstance(live, dict) else {}
    if _RETAIN in patch:
        result = {name: value for name, value in result.items() if name in patch[_RETAIN]}
    for name, value in patch.items():
        there, here = result.get(name), (*names, name)
        if name.startswith(_PRIMITIVES):
            name = name.removeprefix(_PRIMITIVES)
            result[name] = [item for item in result.get(name, []) if item not in value]
        elif name.startswith("$"):
            continue
        elif value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = _strategic(kind, there, value, here)
        elif isinstance(value, list) and (keys := merge_keys(kind, here)[:1]):
            result[name] = _items(kind, there or [], value, here, keys)
        else:
            result[name] = value
    for name, order in patch.items():
        if name.startswith(_ORDER):
            _reorder(kind, result, name.removeprefix(_ORDER), order, names)
    return result


def _items(kind: Kind, live: list[Obj], patch: list[Obj], names: Names, keys: Names) -> list[Obj]:
    there = {item_key(item, keys): item for item in live}
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    for item in patch:
        key = item_key(item, keys)
        if item.get("$patch") == "delete":
            there.pop(key, None)
        else:
            there[key] = _strategic(kind, there.get(key, {}), item, names)
    return list(there.values())


def _reorder(kind: Kind, result: Obj, name: str, order: list[Any], names: Names) -> None:
    keys = merge_keys(kind, (*names, name))[:1]
    if keys and name in result:
        ranks = {item_key(item, keys): rank for rank, item in enumerate(order)}
        result[name].sort(key=lambda item: ranks.get(item_key(item, keys), len(ranks)))


def _operate(document: Any, operation: Obj) -> Any:
    """One operation of a JSON patch (RFC 6902)."""
    path, action = operation["path"], operation["op"]
    if action in ("move", "copy"):
        value = copy.deepcopy(_at(document, _pointer(operation["from"])))
        if action == "move":
            _operate(document, {"op": "remove", "path": operation["from"]})
        return _operate(document, {"op": "add", "path": path, "value": value})
    value, pointer = operation.get("value"), _pointer(path)
    if not pointer:
        return value
    parent, last = _at(document, pointer[:-1]), pointer[-1]
    if isinstance(parent, list):
        last = len(parent) if last == "-" else int(last)
    if action == "test":
        if _at(document, pointer) != value:
            raise ApiError(422, "Invalid", f"testing value {path} failed: test failed")
    elif action == "add" and isinstance(parent, list):
        parent.insert(last, value)
    elif action == "add":
        parent[last] = value
    elif action in ("replace", "remove"):
        _at(document, pointer)
        parent[last] = value
        if action == "remove":
            del parent[last]
    else:
        raise bad_request(f"unknown operation of a JSON patch: {action!r}")
    return document


def _pointer(path: str) -> list[Any]:
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]


def _at(document: Any, pointer: list[Any]) -> Any:
    try:
        for step in pointer:
            document = document[int(step) if isinstance(document, list) else step]
    except (KeyError, IndexError, ValueError, TypeError) as error:
        where = "/" + "/".join(map(str, pointer))
        raise ApiError(
            422, "Invalid", f"the path of the JSON patch is not there: {where}"
        ) from error
    return document
