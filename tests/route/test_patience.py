"""Lateness is judged by the requests of like cost, and not before there are enough of them."""

import math

from hypothesis import given
from hypothesis import strategies as st

from gateway.route.patience import ENOUGH, REMEMBERED, Patience


def test_unknown_until_there_are_enough() -> None:
    patience = Patience()
    for _ in range(ENOUGH - 1):
        patience.waited(10.0, 1.0)
    assert patience.limit(10.0) is None
    patience.waited(10.0, 1.0)
    assert patience.limit(10.0) == 1.0


def test_costs_are_alike_within_a_power_of_two() -> None:
    patience = Patience()
    for _ in range(ENOUGH):
        patience.waited(100.0, 1.0)
    assert patience.limit(64.0) == patience.limit(127.9) == 1.0
    assert patience.limit(63.9) is patience.limit(128.0) is None
    for _ in range(ENOUGH):
        patience.waited(0.0, 2.0)
    assert patience.limit(1.9) == 2.0


@given(st.lists(st.floats(0, 100), min_size=ENOUGH, max_size=REMEMBERED + 50))
def test_99_of_100_were_no_later(seconds: list[float]) -> None:
    patience = Patience()
    for each in seconds:
        patience.waited(10.0, each)
    limit = patience.limit(10.0)
    assert limit is not None
    last = seconds[-REMEMBERED:]
    assert sum(each <= limit for each in last) >= math.ceil(0.99 * len(last))
    assert sum(each < limit for each in last) < math.ceil(0.99 * len(last))
