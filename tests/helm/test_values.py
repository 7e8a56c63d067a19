"""values.yaml, its schema and the table in the README tell of the same values."""

import importlib.util
import json
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.helm.chart import CHART

# What Helm itself adds, and what only a pool of its own has.
EXEMPT = {"global", "workerDefaults.name", "workerDefaults.model"}


@pytest.fixture(scope="module")
def readme() -> ModuleType:
    spec = importlib.util.spec_from_file_location("readme", CHART.parent / "readme.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def source() -> str:
    return (CHART / "values.yaml").read_text()


def test_the_table_is_fresh(readme: ModuleType, source: str) -> None:
    text = (CHART / "README.md").read_text()
    assert readme.updated(text, source) == text, "run 'make chart-readme' and commit"


def test_a_stale_table_is_noticed(readme: ModuleType, source: str) -> None:
    text = (CHART / "README.md").read_text()
    assert readme.updated(text, source.replace("replicas: 2", "replicas: 3")) != text


def test_a_readme_without_a_place_is_refused(readme: ModuleType, source: str) -> None:
    with pytest.raises(ValueError, match="no place for the table"):
        readme.updated("# Radixgate", source)


def test_every_value_has_a_reason(readme: ModuleType, source: str) -> None:
    assert not [row.path for row in readme.rows(source) if not row.text]


def test_rows_are_read_as_they_are_meant(readme: ModuleType) -> None:
    source = """
# no reason
a:
  # told before
  # -- The first
  # and more.
  b: 1
  c: []
# -- A whole | map.
d:
  e: x
"""
    assert [tuple(row) for row in readme.rows(source)] == [
        ("a.b", "1", "The first and more."),
        ("a.c", "[]", ""),
        ("d", '{"e": "x"}', "A whole | map."),
    ]
    assert r"A whole \| map." in readme.table(source)


def test_schema_and_values_have_the_same_keys(source: str) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load(source)
    assert set(_known(schema, schema)) - set(_given(defaults, schema, schema)) <= EXEMPT
    assert set(_given(defaults, schema, schema)) <= set(_known(schema, schema))


def _resolved(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        found: dict[str, Any] = root["definitions"][schema["$ref"].rpartition("/")[2]]
        return found
    return schema


def _known(schema: dict[str, Any], root: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, part in schema.get("properties", {}).items():
        path = prefix + key
        yield path
        if path not in EXEMPT and key not in {"resources", "affinity"}:
            yield from _known(_resolved(part, root), root, f"{path}.")


def _given(
    values: dict[str, Any], schema: dict[str, Any], root: dict[str, Any], prefix: str = ""
) -> Iterator[str]:
    for key, value in values.items():
        path = prefix + key
        yield path
        part = _resolved(schema["properties"].get(key, {}), root)
        if (
            isinstance(value, dict)
            and "properties" in part
            and key not in {"resources", "affinity"}
        ):
            yield from _given(value, part, root, f"{path}.")


def test_the_schema_leaves_no_object_open(source: str) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    free = {
        "global",
        "valueFrom",
        "nodeAffinity",
        "podAffinity",
        "podAntiAffinity",
        "namespaceSelector",
        "podSelector",
        "ipBlock",
    }
    assert set(_open(schema, "")) <= free


def _open(schema: Any, name: str) -> Iterator[str]:
    if isinstance(schema, dict):
        if schema.get("type") == "object" and "additionalProperties" not in schema:
            yield name
        for key, part in schema.items():
            yield from _open(part, key)
    elif isinstance(schema, list):
        for part in schema:
            yield from _open(part, name)
