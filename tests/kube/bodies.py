"""Request bodies: JSON, YAML, and of Kubernetes' protobuf what Helm sends."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import yaml

from tests.kube.errors import ApiError

# Messages by field number: name, and text, data, number, or the message or map of that in it.
_MESSAGES: dict[str, dict[int, tuple[str, str]]] = {
    "Unknown": {1: ("type", "Type"), 2: ("raw", "bytes")},
    "Type": {1: ("apiVersion", "text"), 2: ("kind", "text")},
    "Secret": {1: ("metadata", "Metadata"), 2: ("data", "map data"), 3: ("type", "text")},
    "Metadata": {
        **{1: ("name", "text"), 3: ("namespace", "text"), 6: ("resourceVersion", "text")},
        **{11: ("labels", "map text"), 12: ("annotations", "map text")},
    },
    "DeleteOptions": {1: ("gracePeriodSeconds", "number"), 4: ("propagationPolicy", "text")},
}


def decoded(raw: bytes, content_type: str) -> Any:
    """The body as JSON would have it; 415 of a format that is not known."""
    if not raw:
        return {}
    if content_type.endswith("json"):
        return json.loads(raw)
    if content_type.endswith("yaml"):
        return yaml.load(raw, yaml.CSafeLoader)
    if content_type == "application/vnd.kubernetes.protobuf":
        unknown = _message("Unknown", raw.removeprefix(b"k8s\0"))
        if (name := unknown["type"]["kind"]) in _MESSAGES:
            return unknown["type"] | _message(name, unknown.get("raw", b""))
    raise ApiError(415, "UnsupportedMediaType", f"the body is in an unknown format: {content_type}")


def _message(name: str, raw: bytes) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for number, value in _fields(raw):
        field, form = _MESSAGES[name].get(number, ("", ""))
        if form.startswith("map "):
            entry = dict(_fields(value))
            key = entry.get(1, b"").decode()
            result.setdefault(field, {})[key] = _value(form[4:], entry.get(2, b""))
        elif field and value != b"":
            result[field] = _value(form, value)
    return result


def _value(form: str, value: Any) -> Any:
    match form:
        case "text":
            return value.decode()
        case "data":
            return base64.b64encode(value).decode()
        case "bytes" | "number":
            return value
    return _message(form, value)


def _fields(raw: bytes) -> Iterator[tuple[int, Any]]:
    """Field numbers and values of a message: int, or bytes."""
    position = 0
    while position < len(raw):
        tag, position = _varint(raw, position)
        value: Any
        value, position = _varint(raw, position)
        if tag & 7 == 2:
            value, position = raw[position : position + value], position + value
        yield tag >> 3, value


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while raw[position] & 0x80:
        value |= (raw[position] & 0x7F) << shift
        position, shift = position + 1, shift + 7
    return value | raw[position] << shift, position + 1
