"""What rules and dashboard ask Prometheus for, and which of it has no answer in a healthy fleet."""

import json
import re
from typing import Any, Final

from tests.monitoring.promtool import DASHBOARD, rules

# Served by others.
FOREIGN: Final = {"keda_scaled_object_errors_total"}

# Without samples where the API server is not asked for workers.
KUBERNETES: Final = {
    "radixgate_gateway_discovery_age_seconds",
    "radixgate_gateway_discovery_endpoints",
}

_METRIC: Final = re.compile(r"\b(?:model:)?(?:radixgate|keda)_\w+(?::\w+)?")
_SELECTOR: Final = re.compile(rf"(?:{_METRIC.pattern}|\bup)(?:\{{[^}}]*\}})?")


def metrics(text: str) -> set[str]:
    """Names of metrics of ours and of KEDA's in any text."""
    return set(_METRIC.findall(text))


def selectors(expression: str) -> list[str]:
    """All instant selectors of PromQL, without ranges and offsets."""
    return _SELECTOR.findall(expression)


def expressions() -> dict[str, str]:
    """Of all rules, by what they make."""
    return {rule.get("alert") or rule["record"]: rule["expr"] for rule in rules()}


def panels() -> list[dict[str, Any]]:
    """Of the dashboard, rows left out."""
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if "targets" in panel]


def asked(window: str) -> dict[str, str]:
    """The dashboard's queries by panel and legend, with all variables put in."""
    values = {"$__rate_interval": window, "$namespace": ".*", "$model": ".*"}
    found = {}
    for panel in panels():
        for target in panel["targets"]:
            query = target["expr"]
            for name, value in values.items():
                query = query.replace(name, value)
            found[f"{panel['title']} {target['legendFormat']}"] = query
    return found
