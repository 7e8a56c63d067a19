"""The HPA's algorithm: examples of the Kubernetes documentation, and what must always hold."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube.hpa import Autoscaler, Reading, Replicas, proposal

BEHAVIOR_OF_THE_DOCUMENTATION = {
    "scaleDown": {
        "stabilizationWindowSeconds": 0,
        "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 60},
            {"type": "Percent", "value": 10, "periodSeconds": 60},
        ],
    }
}


def settle(spec: dict[str, Any], current: int, asked: int, times: list[float]) -> list[int]:
    """The replicas after each of `times`, in seconds, while the metrics ask for `asked`."""
    memory, found = Autoscaler(), []
    for time in times:
        current = memory.decide(spec, time, current, asked)
        found.append(current)
    return found


@pytest.mark.parametrize(
    ("value", "asked"),
    # "if the current metric value is 200m, and the desired value is 100m, the number of replicas
    # will be doubled; … 50m, halved"; within a tenth nothing changes.
    [(0.2, 8), (0.05, 2), (0.109, 4), (0.091, 4), (0.111, 5), (0.089, 4), (0.07, 3)],
)
def test_a_value_is_compared_with_its_target(value: float, asked: int) -> None:
    assert proposal([Reading(value, 0.1, False)], Replicas(4, 4, 4)) == asked


def test_a_value_grows_from_the_pods_that_are_ready() -> None:
    assert proposal([Reading(2, 1, False)], Replicas(4, 4, 3)) == 6


@pytest.mark.parametrize(("value", "asked"), [(30, 3), (41, 4), (43.9, 4), (0, 0), (44.1, 5)])
def test_an_average_is_divided_by_its_target(value: float, asked: int) -> None:
    assert proposal([Reading(value, 10, True)], Replicas(4, 4, 4)) == asked


def test_of_several_metrics_the_one_that_asks_for_most_counts() -> None:
    readings = [Reading(20, 10, True), Reading(70, 10, True)]
    assert proposal(readings, Replicas(4, 4, 4)) == 7


def test_a_missing_metric_forbids_to_scale_down_but_not_up() -> None:
    assert proposal([Reading(20, 10, True), None], Replicas(4, 4, 4)) is None
    assert proposal([Reading(70, 10, True), None], Replicas(4, 4, 4)) == 7
    assert proposal([None], Replicas(4, 4, 4)) is None


def test_the_policies_of_the_documentation_from_80_to_10() -> None:
    # 8 of 80 first, then "10% of the pods is 7.2 but the number is rounded up to 8", and below 40
    # four at a time.
    spec = {"minReplicas": 1, "maxReplicas": 100, "behavior": BEHAVIOR_OF_THE_DOCUMENTATION}
    found = settle(spec, 80, 10, [61.0 * step for step in range(1, 14)])
    assert found == [72, 64, 57, 51, 45, 40, 36, 32, 28, 24, 20, 16, 12]


def test_a_policy_counts_what_happened_within_its_period() -> None:
    spec = {"maxReplicas": 100, "behavior": BEHAVIOR_OF_THE_DOCUMENTATION}
    assert settle(spec, 80, 10, [0, 15, 30, 45, 60.5]) == [72, 72, 72, 72, 64]


def test_by_default_it_doubles_or_adds_four_each_15_seconds() -> None:
    assert settle({"maxReplicas": 100}, 1, 50, [0, 15, 30, 45, 60]) == [5, 10, 20, 40, 50]


def test_by_default_it_scales_down_after_five_minutes_at_once() -> None:
    found = settle({"maxReplicas": 100}, 50, 2, [0, 15, 150, 299, 300, 315])
    assert found == [50, 50, 50, 50, 2, 2]


def test_a_short_fall_within_the_window_changes_nothing() -> None:
    memory, current = Autoscaler(), 5
    for time, asked in [(0, 5), (100, 1), (200, 5), (450, 1), (499, 1)]:
        current = memory.decide({"maxReplicas": 9}, time, current, asked)
        assert current == 5
    assert memory.decide({"maxReplicas": 9}, 501, 5, 2) == 2


def test_bounds_hold_at_once_and_none_stays_none() -> None:
    assert settle({"minReplicas": 3, "maxReplicas": 9}, 1, 1, [0]) == [3]
    assert settle({"maxReplicas": 9}, 12, 12, [0]) == [9]
    assert settle({"maxReplicas": 9}, 0, 5, [0]) == [0]


STEPS = st.lists(st.tuples(st.integers(1, 40), st.one_of(st.none(), st.integers(0, 30))))


@given(steps=STEPS, window=st.sampled_from([0, 30, 120]), pods=st.integers(1, 5))
def test_what_always_holds(steps: list[tuple[int, int | None]], window: int, pods: int) -> None:
    """Bounds; no fall below what was asked for within the window; no more pods than the policy."""
    policies = [{"type": "Pods", "value": pods, "periodSeconds": 60}]
    down = {"stabilizationWindowSeconds": window, "policies": policies}
    spec = {"minReplicas": 1, "maxReplicas": 20, "behavior": {"scaleDown": down}}
    memory, now, current = Autoscaler(), 0.0, 10
    changes, questions = [], []
    for seconds, asked in steps:
        now += seconds
        desired = memory.decide(spec, now, current, asked)
        changes.append((now, desired - current))
        assert 1 <= desired <= 20
        if asked is None:
            assert desired == current
            continue
        questions.append((now, asked))
        if desired < current:
            recent = [n for time, n in questions if time > now - window]
            assert desired >= min(current, max(recent, default=0))
            last_minute = [change for time, change in changes if time > now - 60]
            falls = -sum(change for change in last_minute if change < 0)
            assert falls <= pods + sum(change for change in last_minute if change > 0)
        current = desired
