"""Request bodies: JSON, YAML, and of Kubernetes' protobuf what Helm sends."""

import json
from typing import Any

import grpc
import yaml
from google.protobuf.json_format import MessageToDict

from tests.kube.errors import ApiError

_MESSAGES: Any = grpc.protos("tests/kube/kubernetes.proto")


def decoded(raw: bytes, content_type: str) -> Any:
    """The body as JSON would have it; 415 of a format that is not known."""
    if not raw:
        return {}
    if content_type.endswith("json"):
        return json.loads(raw)
    if content_type.endswith("yaml"):
        return yaml.load(raw, yaml.CSafeLoader)
    if content_type == "application/vnd.kubernetes.protobuf":
        unknown = _MESSAGES.Unknown.FromString(raw.removeprefix(b"k8s\0"))
        if message := getattr(_MESSAGES, unknown.typeMeta.kind, None):
            return MessageToDict(unknown.typeMeta) | MessageToDict(message.FromString(unknown.raw))
    raise ApiError(415, "UnsupportedMediaType", f"the body is in an unknown format: {content_type}")
