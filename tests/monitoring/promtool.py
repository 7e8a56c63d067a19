"""Prometheus' own tools, and the rules that they are given."""

import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.helm.chart import CHART

RULES: Final = CHART / "files" / "alerts.yaml"
DASHBOARD: Final = CHART / "files" / "dashboard.json"
DOCS: Final = Path(__file__).parents[2] / "docs"

needs_prometheus: Final = pytest.mark.skipif(
    not (shutil.which("promtool") and shutil.which("prometheus")),
    reason="needs promtool and prometheus: the Debian package prometheus has both",
)


def rules(path: Path = RULES) -> list[dict[str, Any]]:
    """All rules, in order."""
    groups = yaml.safe_load(path.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    """Alerts by name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def promtool(*arguments: str | Path) -> None:
    """Run it; what it says against the files fails the test."""
    result = subprocess.run(
        ["promtool", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
