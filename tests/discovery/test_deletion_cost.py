"""What a pod's deletion costs: by value, steady, and within what Kubernetes takes."""

import math

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.scale.deletion_cost import DRAINING, Holding, cost, costs

VALUES = st.floats(0, 1e9)


@given(st.floats(0, 1.7e308), st.none() | st.integers(DRAINING, 2050))
def test_a_cost_is_an_int32_and_near_its_value(value: float, before: int | None) -> None:
    exact = 2 * math.log2(1 + value)
    found = cost(value, before)
    assert 0 <= found < 2**31
    assert abs(found - exact) < 0.8 + 1e-9


@given(VALUES, st.lists(st.floats(-0.10, 0.10)))
@example(75.0, [0.09375, -0.09375])
def test_a_value_that_sways_moves_its_cost_once_at_most(value: float, sways: list[float]) -> None:
    now = cost(value, None)
    seen = {now}
    for sway in sways:
        now = cost(value * (1 + sway), now)
        seen.add(now)
    assert len(seen) <= 2
    # From wherever it went it does not come back by as little.
    for sway in sways:
        assert cost(value * (1 + sway), now) == now or len(seen) == 1


@given(VALUES, VALUES, st.none() | st.integers(0, 60))
def test_who_saves_twice_as_much_costs_more(low: float, high: float, before: int | None) -> None:
    if 1 + high >= 2 * (1 + low):
        assert cost(high, before) > cost(low, before)


def test_a_new_pod_goes_before_a_warm_one_and_a_draining_one_before_all() -> None:
    holdings = [
        Holding("warm", 500.0, draining=False),
        Holding("new", 0.0, draining=False),
        Holding("drains", 9000.0, draining=True),
        Holding("two", 300.0, draining=False),
        Holding("two", 300.0, draining=True),
    ]
    found = costs(holdings, {})
    assert found["drains"] == DRAINING < found["new"] == 0 < found["warm"] <= found["two"]
    assert costs(holdings, found) == found
