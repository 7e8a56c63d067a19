"""What the chart makes of alerts and dashboard: right for the operator, of one release alone."""

import json
import re
from pathlib import Path
from typing import Any

import helm_python as helm
import pytest
import yaml
from cloudcoil.models.prometheus_operator.v1 import PodMonitor, PrometheusRule

from tests.helm.cases import pool
from tests.helm.chart import NAMESPACE, RELEASE, Object, containers, named, of_kind, pods, render
from tests.monitoring.promtool import DASHBOARD, alerts, needs_prometheus, promtool, rules

NAME = f"{RELEASE}-radixgate"
KINDS = ("PodMonitor", "PrometheusRule")


def monitored(**rules: Any) -> list[Object]:
    """All of it switched on."""
    monitoring = {
        "scrape": {"enabled": True, "labels": {"release": "stack"}},
        "rules": {"enabled": True, "labels": {"release": "stack"}, **rules},
        "dashboard": {"enabled": True, "annotations": {"grafana_folder": "Inference"}},
    }
    return render({"monitoring": monitoring, "workers": [pool()]})


def rendered_rules(objects: list[Object]) -> dict[str, Any]:
    """By name."""
    groups = named(objects, "PrometheusRule", NAME)["spec"]["groups"]
    found = [rule for group in groups for rule in group["rules"]]
    return {rule.get("alert") or rule["record"]: rule for rule in found}


def test_nothing_is_made_unless_asked_for() -> None:
    objects = render({"workers": [pool()]})
    assert not of_kind(objects, *KINDS)
    assert not [found for found in of_kind(objects, "ConfigMap") if "dashboard" in str(found)]


@pytest.mark.parametrize(
    ("part", "kind", "number"),
    [("scrape", "PodMonitor", 2), ("rules", "PrometheusRule", 1), ("dashboard", "ConfigMap", 1)],
)
def test_each_part_has_a_switch(part: str, kind: str, number: int) -> None:
    before = of_kind(render({}), *KINDS, "ConfigMap")
    after = of_kind(render({"monitoring": {part: {"enabled": True}}}), *KINDS, "ConfigMap")
    added = [found for found in after if found not in before]
    assert [found["kind"] for found in added] == [kind] * number


def test_the_operator_takes_them() -> None:
    models = {"PodMonitor": PodMonitor, "PrometheusRule": PrometheusRule}
    found = of_kind(monitored(), *KINDS)
    assert len(found) == 3
    for each in found:
        model = models[each["kind"]].model_validate(each, strict=False)
        # What the model does not know, it would have left out.
        again = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
        assert again == each
        assert each["metadata"]["labels"]["release"] == "stack"


def test_pods_are_scraped_at_the_port_that_they_have() -> None:
    objects = monitored()
    for monitor in of_kind(objects, "PodMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        chosen = [pod for pod in pods(objects) if wanted <= pod["metadata"]["labels"].items()]
        assert chosen
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        for pod in chosen:
            ports = [port["name"] for each in containers(pod) for port in each.get("ports", [])]
            assert endpoint["port"] in ports


def test_rules_are_those_of_the_file_for_this_release_alone() -> None:
    objects = monitored()
    found = rendered_rules(objects)
    jobs = {
        endpoint["relabelings"][0]["replacement"]
        for monitor in of_kind(objects, "PodMonitor")
        for endpoint in monitor["spec"]["podMetricsEndpoints"]
    }
    assert jobs == {f"{NAME}-gateway", f"{NAME}-worker"}
    asked = []
    for rule in rules():
        name = rule.get("alert") or rule["record"]
        for job in ("gateway", "worker"):
            rule["expr"] = rule["expr"].replace(
                f'job="{job}"', f'namespace="{NAMESPACE}",job="{NAME}-{job}"'
            )
        rule["expr"] = rule["expr"].replace('".*worker-.+"', f'"{NAME}-worker-.+"')
        if "  # monitoring." in rule["expr"]:
            asked.append(name)
            rule["expr"] = rule["expr"].split("  # monitoring.")[0] + "\n"
        assert found.pop(name) == rule
        for selector in re.findall(r"\{[^}]*\}", rule["expr"]):
            assert f'job="{NAME}-' in selector or "scaledObject" in selector, name
    assert not found
    assert asked == ["RadixgateLongQueue", "RadixgateSlowFirstTokens"]


def test_thresholds_and_runbooks_are_values() -> None:
    found = rendered_rules(
        monitored(firstTokenSeconds=2.5, queueSeconds=20, runbooks="https://example.com/")
    )
    assert found["RadixgateSlowFirstTokens"]["expr"].strip().endswith("> 2.5")
    assert found["RadixgateLongQueue"]["expr"].strip().endswith("> 20")
    url = found["RadixgateLongQueue"]["annotations"]["runbook_url"]
    assert url == "https://example.com/docs/alerts.md#radixgatelongqueue"


@pytest.mark.slow
@needs_prometheus
def test_rendered_rules_are_rules(tmp_path: Path) -> None:
    groups = named(monitored(), "PrometheusRule", NAME)["spec"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(groups))
    promtool("check", "rules", tmp_path / "rules.yaml")


def test_an_alert_that_is_not_wanted_is_left_out() -> None:
    found = rendered_rules(monitored(disabled=["RadixgateFragmentation"]))
    assert alerts().keys() - found.keys() == {"RadixgateFragmentation"}


def test_an_alert_that_there_is_not_cannot_be_left_out() -> None:
    with pytest.raises(helm.HelmError, match="has RadixgateTypo, and there is no such alert"):
        monitored(disabled=["RadixgateTypo"])


def test_a_pool_that_may_be_empty_is_no_alert() -> None:
    scaling = {"mode": "keda", "scaleToZero": True}
    values = {
        "workers": [pool(autoscaling=scaling)],
        "monitoring": {"rules": {"enabled": True}},
    }
    found = rendered_rules(render(values))
    assert alerts().keys() - found.keys() == {"RadixgateModelWithoutWorkers"}


def test_grafana_finds_the_dashboard() -> None:
    config = named(monitored(), "ConfigMap", f"{NAME}-dashboard")
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert config["metadata"]["annotations"] == {"grafana_folder": "Inference"}
    assert json.loads(config["data"]["radixgate.json"]) == json.loads(DASHBOARD.read_text())
