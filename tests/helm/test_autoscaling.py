"""Each mode asks for the metric in the way that its source gives it."""

import pytest

from tests.helm.cases import CASES
from tests.helm.chart import Object, of_kind, render


def scaler(case: str) -> Object:
    (found,) = of_kind(render(CASES[case]), "ScaledObject", "HorizontalPodAutoscaler")
    spec: Object = found["spec"]
    return spec


def test_keda_asks_the_gateways_for_the_sum_over_workers() -> None:
    assert scaler("keda")["triggers"] == [
        {
            "type": "external",
            "metricType": "AverageValue",
            "metadata": {
                "scalerAddress": "test-radixgate-gateway.llm.svc:50051",
                "model": "Qwen3-0.6B",
                "metric": "desired_workers",
                "scaleToZero": "false",
            },
        }
    ]


def test_keda_to_zero_keeps_a_smallest_size_for_when_it_is_awake() -> None:
    spec = scaler("keda to zero")
    assert (spec["idleReplicaCount"], spec["minReplicaCount"], spec["maxReplicaCount"]) == (0, 1, 9)
    (trigger,) = spec["triggers"]
    assert trigger["type"] == "external-push", "the first request wakes the pool at once"
    assert trigger["metricType"] == "AverageValue"
    assert trigger["metadata"]["target"] == "0.7"
    assert trigger["metadata"]["scaleToZero"] == "true"


@pytest.mark.parametrize(
    ("case", "kind", "query", "target"),
    [
        (
            "keda-prometheus",
            "AverageValue",
            'max(radixgate_gateway_scale_desired_workers{namespace="llm",model="Qwen3-0.6B"})',
            "1",
        ),
        (
            "keda-prometheus by time",
            "Value",
            'max(radixgate_gateway_scale_queue_seconds{namespace="llm",model="Qwen3-0.6B"})',
            "2",
        ),
    ],
)
def test_keda_asks_prometheus_for_a_number_or_a_mean(
    case: str, kind: str, query: str, target: str
) -> None:
    spec = scaler(case)
    (trigger,) = spec["triggers"]
    assert (trigger["type"], trigger["metricType"]) == ("prometheus", kind)
    assert trigger["metadata"]["query"] == query
    assert trigger["metadata"]["threshold"] == target
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    assert "idleReplicaCount" not in spec


@pytest.mark.parametrize("case", ["keda", "keda to zero", "keda-prometheus"])
def test_silence_changes_no_size(case: str) -> None:
    fallback = scaler(case)["fallback"]
    assert fallback["behavior"] == "currentReplicasIfHigher"
    assert fallback["replicas"] == scaler(case)["minReplicaCount"]


def test_keda_has_no_fallback_where_it_knows_none() -> None:
    assert "fallback" not in scaler("keda-prometheus by time")


@pytest.mark.parametrize(
    ("case", "metric", "target"),
    [
        ("hpa", "desired_workers", {"type": "AverageValue", "averageValue": "1"}),
        ("hpa by a share", "cache_pressure", {"type": "Value", "value": "0.2"}),
    ],
)
def test_an_hpa_asks_the_adapter(case: str, metric: str, target: Object) -> None:
    (found,) = scaler(case)["metrics"]
    assert found["external"] == {
        "metric": {
            "name": f"radixgate_gateway_scale_{metric}",
            "selector": {"matchLabels": {"model": "Qwen3-0.6B"}},
        },
        "target": target,
    }


@pytest.mark.parametrize("case", ["keda", "hpa"])
def test_a_warm_cache_is_worth_waiting_for(case: str) -> None:
    spec = scaler(case)
    behavior = (
        spec.get("behavior") or (spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"])
    )
    assert behavior["scaleDown"] == {
        "stabilizationWindowSeconds": 600,
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 300}],
    }
    assert behavior["scaleUp"]["stabilizationWindowSeconds"] == 45
