"""Each alert fires when it should, after its `for`, and not otherwise; and says what to do."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.monitoring.cases import CASES, Fires, Quiet
from tests.monitoring.promtool import DOCS, RULES, alerts, needs_prometheus, promtool, rules

HOURS_3 = range(0, 180, 3)


@pytest.mark.slow
@needs_prometheus
def test_the_rules_are_rules() -> None:
    promtool("check", "rules", RULES)


@pytest.mark.slow
@needs_prometheus
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert}: {case.what}")
def test_alerts_fire_when_they_should(case: Fires | Quiet, tmp_path: Path) -> None:
    severity = alerts()[case.alert]["labels"]
    if isinstance(case, Fires):
        firing = [{"exp_labels": labels | severity} for labels in case.labels]
        expected = {case.minute - 1: [], case.minute: firing}
    else:
        last = max(len(HOURS_3), *(_minutes(values) for values in case.series.values()))
        expected = {minute: [] for minute in range(0, last, 3)}
    check(tmp_path, case.series, {case.alert: expected})


@pytest.mark.slow
@needs_prometheus
def test_without_data_only_the_lack_of_it_is_told(tmp_path: Path) -> None:
    minutes: dict[int, Any] = {minute: [] for minute in HOURS_3}
    check(tmp_path, {}, {name: minutes for name in alerts() if name != "RadixgateNoGateway"})


def test_each_alert_has_cases_of_both_kinds() -> None:
    counts = Counter((case.alert, type(case)) for case in CASES)
    assert set(counts) == {(name, kind) for name in alerts() for kind in (Fires, Quiet)}


def test_alerts_use_labels_that_they_have() -> None:
    for case in CASES:
        if isinstance(case, Fires):
            texts = " ".join(alerts()[case.alert]["annotations"].values())
            used = set(re.findall(r"\$labels\.(\w+)", texts))
            # NOTE: a model that is not known is an empty label, and the text says so.
            assert used <= {*case.labels[0], *re.findall(r"or \$labels\.(\w+)", texts)}, case


def test_every_alert_says_what_it_means_and_where_to_read_on() -> None:
    sections = re.findall(r"^### (\w+)$", (DOCS / "alerts.md").read_text(), re.MULTILINE)
    assert sections == list(alerts())
    for name, alert in alerts().items():
        assert alert["labels"]["severity"] in {"critical", "warning", "info"}
        annotations = alert["annotations"]
        assert list(annotations) == ["summary", "description", "runbook_url"], name
        assert annotations["runbook_url"] == f"docs/alerts.md#{name.lower()}"


def test_one_event_makes_no_alert() -> None:
    """What is counted in a window has to go on for longer than that."""
    for name, alert in alerts().items():
        counted = re.findall(r"(?:rate|increase)\([^[]*\[(\w+)\]", alert["expr"])
        assert all(_seconds(window) < _seconds(alert["for"]) for window in counted), name


def check(directory: Path, series: dict[str, str], expected: dict[str, dict[int, Any]]) -> None:
    """Let promtool find these alerts, and no others of their names, at these minutes."""
    # Without texts, which promtool would compare word by word.
    bare = [
        {key: rule[key] for key in rule if key != "annotations"}
        for rule in rules()
        if rule.get("alert") in {None, *expected}
    ]
    (directory / "rules.yaml").write_text(
        yaml.safe_dump({"groups": [{"name": "all", "rules": bare}]})
    )
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": each} for name, each in series.items()],
        "alert_rule_test": [
            {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": firing}
            for name, minutes in expected.items()
            for minute, firing in minutes.items()
        ],
    }
    path = directory / "test.yaml"
    path.write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]})
    )
    promtool("test", "rules", path)


def _minutes(values: str) -> int:
    """How many values there are."""
    return sum(1 + int(each.partition("x")[2] or 0) for each in values.split())


def _seconds(duration: str) -> int:
    return int(duration[:-1]) * {"m": 60, "h": 3600, "d": 86400}[duration[-1]]
