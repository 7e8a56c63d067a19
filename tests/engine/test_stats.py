"""Rates that the engine learns from its steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.engine.stats import Mean, Rates

OBSERVED = st.tuples(st.floats(0, 1000), st.floats(0.001, 10), st.integers(1, 2000))


@given(st.lists(OBSERVED, min_size=1, max_size=4))
def test_many_alike_in_a_row_count_as_one_by_one(observed: list[tuple[float, float, int]]) -> None:
    at_once, singly = Mean(), Mean()
    for amount, per, times in observed:
        at_once.observe(amount, per, times)
        for _ in range(times):
            singly.observe(amount, per)
    assert at_once.value == pytest.approx(singly.value)


def test_what_came_later_weighs_more() -> None:
    mean = Mean()
    assert mean.value == 0
    mean.observe(10, 1)
    assert mean.value == 10
    mean.observe(20, 1)
    assert 15 < mean.value < 16


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.floats(0.001, 0.1))
def test_a_prompt_looks_as_fast_alone_as_beside_answers(beside: list[bool], step: float) -> None:
    """Else routers would send to whoever is busy already, since it looks faster."""
    rates = Rates()
    rates.generations(4, step)
    for shared in beside:
        rates.step(200, 4 if shared else 0, step + 0.1, prefill_work=300)
    assert rates.prefill_tokens_per_second == pytest.approx(2000)
    assert rates.prefill_work_per_second == pytest.approx(3000)
