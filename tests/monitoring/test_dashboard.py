"""The dashboard in the chart is the one in `deploy/dashboard`, and Grafana can lay it out."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.dashboard.grafana import WIDTH, dashboard, to_json
from deploy.dashboard.rows import ROWS
from tests.monitoring.promtool import DASHBOARD, needs_prometheus, promtool
from tests.monitoring.queries import asked, panels


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


@pytest.mark.slow
@needs_prometheus
def test_releases_are_added_up_and_gateways_of_one_are_not(tmp_path: Path) -> None:
    workers = {"a": 3, "b": 2}
    series = [
        {
            "series": f'radixgate_gateway_candidates{{namespace="{namespace}",job="gateway",'
            f'instance="{gateway}",model="m"}}',
            "values": str(number),
        }
        for namespace, number in workers.items()
        for gateway in (1, 2)
    ]
    wanted = {"expr": asked("5m")["Workers "], "eval_time": "0m"}
    wanted |= {"exp_samples": [{"labels": "{}", "value": 5}]}
    tests = [{"interval": "1m", "input_series": series, "promql_expr_test": [wanted]}]
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"tests": tests}))
    promtool("test", "rules", tmp_path / "test.yaml")


def _overlap(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return (
        a["x"] < b["x"] + b["w"]
        and b["x"] < a["x"] + a["w"]
        and a["y"] < b["y"] + b["h"]
        and b["y"] < a["y"] + a["h"]
    )
