"""Values that the documentation shows are values that the chart takes."""

import re
from pathlib import Path

import pytest
import yaml
from cloudcoil.models.keda import v1alpha1 as keda

from tests.helm.chart import CHART, of_kind, render

DOCS = Path(__file__).parents[2] / "docs"
TO_OTHERS = {"apiVersion", "metrics", "rules"}


def examples(path: Path) -> list[dict[str, object]]:
    """The blocks of YAML of a page."""
    return [
        yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", path.read_text(), re.S)
    ]


VALUES = [
    found
    for path in (DOCS / "kubernetes.md", CHART / "README.md")
    for found in examples(path)
    if not found.keys() & TO_OTHERS
]


@pytest.mark.parametrize("values", VALUES, ids="-".join)
def test_values_that_are_shown_are_taken(values: dict[str, object]) -> None:
    assert of_kind(render(values), "Deployment")


def test_there_are_values() -> None:
    assert {key for values in VALUES for key in values} >= {
        "image",
        "workers",
        "redis",
        "monitoring",
    }


def test_a_scaled_object_of_your_own_is_one() -> None:
    (found,) = (example for example in examples(DOCS / "autoscaling.md") if example.get("kind"))
    model = keda.ScaledObject.model_validate(found)
    assert model.model_dump(mode="json", by_alias=True, exclude_unset=True) == found
