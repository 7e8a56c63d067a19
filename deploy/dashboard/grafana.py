"""Panels in Grafana's format: who makes a panel needs none of it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from deploy.dashboard.queries import NAMESPACE, now

SCHEMA_VERSION: Final = 39
"""Of Grafana 10.4; later ones read it and bring it up to theirs."""

SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
WIDTH: Final = 24
HEIGHT: Final = 8

COLORS: Final = {
    **dict.fromkeys(("cached", "live", "OK"), "green"),
    **dict.fromkeys(("new", "running", "free"), "blue"),
    **dict.fromkeys(("elsewhere", "pinned"), "purple"),
    **dict.fromkeys(("evicted", "suspect"), "orange"),
    **dict.fromkeys(("stale", "lost"), "red"),
}
"""Of what has the same name on several panels."""


class Panel(NamedTuple):
    """Args: `title`; Grafana's `unit`; what it `tells`; `queries` by legend; `stack`, how: none,
    normal or percent; `width` of 24; `number`, whether it is one instead of curves.
    """

    title: str
    unit: str
    tells: str
    queries: dict[str, str]
    stack: str = "none"
    width: int = 8
    number: bool = False


def dashboard(rows: Mapping[str, Sequence[Panel]]) -> dict[str, Any]:
    """The whole of it, with `rows` by title."""
    return {
        "uid": "radixgate",
        "title": "Radixgate",
        "description": "docs/metrics.md says what each metric means, docs/alerts.md what to do.",
        "tags": ["radixgate"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": list(_panels(rows)),
    }


def to_json(board: dict[str, Any]) -> str:
    """With a line for each panel, so that a change shows as one."""
    rest = {key: value for key, value in board.items() if key != "panels"}
    panels = ",\n".join(json.dumps(panel) for panel in board["panels"])
    return f'{json.dumps(rest, indent=1)[:-2]},\n "panels": [\n{panels}\n ]\n}}\n'


def _variables() -> list[dict[str, Any]]:
    source = {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
    }
    return [
        source,
        _variable("namespace", "radixgate_gateway_info"),
        _variable("model", now("candidates", NAMESPACE)),
    ]


def _variable(name: str, series: str) -> dict[str, Any]:
    """The values of the label `name`, of `series`."""
    query = f"label_values({series}, {name})"
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        # Also of series that lack the label.
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _panels(rows: Mapping[str, Sequence[Panel]]) -> Iterator[dict[str, Any]]:
    """In rows of `WIDTH`, from left to right."""
    number, x, y, height = 0, 0, 0, 0
    for title, panels in rows.items():
        number += 1
        x, y = 0, y + height
        place = {"h": 1, "w": WIDTH, "x": x, "y": y}
        yield {"id": number, "type": "row", "title": title, "gridPos": place, "panels": []}
        y, height = y + 1, 0
        for panel in panels:
            if x + panel.width > WIDTH:
                x, y = 0, y + height
            height = HEIGHT // 2 if panel.number else HEIGHT
            number += 1
            place = {"h": height, "w": panel.width, "x": x, "y": y}
            yield {"id": number, "gridPos": place, **_panel(panel)}
            x += panel.width


def _panel(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    options: dict[str, Any] = {"reduceOptions": {"calcs": ["lastNotNull"]}}
    stacked = panel.stack != "none"
    if not panel.number:
        options = {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
        defaults["custom"] = {
            "fillOpacity": 60 if stacked else 10,
            "stacking": {"mode": panel.stack, "group": "A"},
        }
    return {
        "type": "stat" if panel.number else "timeseries",
        "title": panel.title,
        "description": panel.tells,
        "datasource": SOURCE,
        "targets": [
            {"refId": chr(ord("A") + at), "legendFormat": legend, "expr": expr}
            for at, (legend, expr) in enumerate(panel.queries.items())
        ],
        "fieldConfig": {"defaults": defaults, "overrides": _colors() if stacked else []},
        "options": options,
    }


def _colors() -> list[dict[str, Any]]:
    return [
        {
            "matcher": {"id": "byName", "options": name},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": color}}],
        }
        for name, color in COLORS.items()
    ]
