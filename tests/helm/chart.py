"""The chart, rendered by Helm itself in this process, as Kubernetes would get it."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import helm_python as helm
import yaml

Object = dict[str, Any]

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "radixgate"
RELEASE, NAMESPACE = "test", "llm"


class _Loader(yaml.CSafeLoader):
    """YAML in which a key that stands twice is an error, as it is for server-side apply."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> Object:
    found: Object = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        assert key not in found, f"{key!r} stands twice{key_node.start_mark}"
        found[key] = loader.construct_object(value_node, deep=True)
    return found


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


@cache
def chart() -> helm.Chart:
    """The chart as it lies in the repository."""
    return helm.Chart.load(CHART)


def files(
    values: Mapping[str, Any],
    *,
    release: str = RELEASE,
    namespace: str = NAMESPACE,
    of: helm.Chart | None = None,
) -> dict[str, str]:
    """What each template becomes, by its path in the chart."""
    rendered = (of or chart()).render(dict(values), name=release, namespace=namespace)
    return {path.removeprefix("radixgate/templates/"): text for path, text in rendered.items()}


def render(
    values: Mapping[str, Any],
    *,
    release: str = RELEASE,
    namespace: str = NAMESPACE,
    of: helm.Chart | None = None,
) -> list[Object]:
    """All objects of the release, and of its tests."""
    return [
        document
        for path, text in files(values, release=release, namespace=namespace, of=of).items()
        if path.endswith(".yaml")
        for document in yaml.load_all(text, _Loader)
        if document
    ]


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    """Those of these kinds."""
    return [found for found in objects if found["kind"] in kinds]


def named(objects: list[Object], kind: str, name: str) -> Object:
    """The one with this name."""
    (found,) = (one for one in of_kind(objects, kind) if one["metadata"]["name"] == name)
    return found


def pods(objects: list[Object]) -> list[Object]:
    """Pods, and what workloads make pods from: each has `metadata` and `spec`."""
    return [
        found if found["kind"] == "Pod" else found["spec"]["template"]
        for found in of_kind(objects, "Pod", "Deployment", "StatefulSet")
    ]


def containers(pod: Object) -> list[Object]:
    """Of a pod, those that prepare it as well."""
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def all_containers(objects: list[Object]) -> Iterator[Object]:
    """Of all pods."""
    for pod in pods(objects):
        yield from containers(pod)


def component(found: Object) -> str:
    """Which part of Radixgate an object or a pod belongs to."""
    return str(found["metadata"]["labels"]["app.kubernetes.io/component"])
