"""The dashboard in the chart is the one in `deploy/dashboard`, and Grafana can lay it out."""

import json
from itertools import combinations
from typing import Any

from deploy.dashboard.grafana import WIDTH, dashboard, to_json
from deploy.dashboard.rows import ROWS
from tests.monitoring.promtool import DASHBOARD
from tests.monitoring.queries import panels


def test_the_committed_dashboard_is_fresh() -> None:
    assert DASHBOARD.read_text() == to_json(dashboard(ROWS)), "run `make dashboard` and commit"


def test_panels_lie_beside_one_another() -> None:
    board = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in board}) == len(board)
    places = [panel["gridPos"] for panel in board]
    assert all(place["x"] >= 0 and place["x"] + place["w"] <= WIDTH for place in places)
    assert not [pair for pair in combinations(places, 2) if _overlap(*pair)]


def test_each_row_fills_its_lines() -> None:
    """No hole where a panel was taken out."""
    lines: dict[int, int] = {}
    for panel in panels():
        place = panel["gridPos"]
        lines[place["y"]] = lines.get(place["y"], 0) + place["w"]
    assert set(lines.values()) == {WIDTH}


def test_panels_say_what_they_tell_and_take_the_chosen_source() -> None:
    titles = [panel["title"] for panel in panels()]
    assert len(set(titles)) == len(titles)
    for panel in panels():
        assert panel["description"].endswith("."), panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references) > 0


def test_every_query_is_of_the_chosen_namespace() -> None:
    for panel in panels():
        for target in panel["targets"]:
            opened = target["expr"].count("{")
            assert target["expr"].count('namespace=~"$namespace"') == opened, panel["title"]


def _overlap(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return (
        a["x"] < b["x"] + b["w"]
        and b["x"] < a["x"] + a["w"]
        and a["y"] < b["y"] + b["h"]
        and b["y"] < a["y"] + a["h"]
    )
