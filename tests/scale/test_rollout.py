"""A rolling update is no reason to grow, though a new worker and its predecessor are both there."""

from typing import Any

import pytest
import yaml
from radixgate.v1.demand_pb2 import Demand

from gateway.scale.desired import desired_workers
from gateway.scale.signals import read
from gateway.scale.window import Entry, Spans, Window
from tests.helm.chart import CHART
from tests.kube.hpa import Autoscaler

HPA_SECONDS = 15
LOAD_SECONDS = 60


def behavior() -> dict[str, Any]:
    """What the chart asks of a HorizontalPodAutoscaler, if nobody says otherwise."""
    up = yaml.safe_load((CHART / "values.yaml").read_text())["workerDefaults"]["autoscaling"][
        "scaleUp"
    ]
    policy = {"type": "Pods", "value": up["pods"], "periodSeconds": up["periodSeconds"]}
    rules = {"stabilizationWindowSeconds": up["stabilizationSeconds"], "policies": [policy]}
    return {"minReplicas": 1, "maxReplicas": 100, "behavior": {"scaleUp": rules}}


@pytest.mark.parametrize("overlap", [2, 10, 20])
@pytest.mark.parametrize("size", [1, 2, 8])
def test_a_pool_is_no_larger_after_a_rolling_update(size: int, overlap: int) -> None:
    window, autoscaler, spec, wanted = Window(Spans(600.0)), Autoscaler(), behavior(), size
    rollout = size * (LOAD_SECONDS + overlap)
    for now in range(rollout + 120):
        both = now % (LOAD_SECONDS + overlap) >= LOAD_SECONDS and now < rollout
        there = Demand(gateway="g", workers=size + both, kv_tokens=10**6)
        window.add(Entry(float(now), there))
        if now % HPA_SECONDS == 0:
            asked = desired_workers(read(window, there, size + both, float(now)))
            wanted = autoscaler.decide(spec, float(now), wanted, asked)
    assert wanted == size
