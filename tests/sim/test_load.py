"""How much a trace asks, and how much workers can serve at most."""

from array import array
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.load import SATURATING, busiest_rate, saturated_rate, saturating
from sim.request import Request, Trace
from sim.setting import Setting
from sim.summary import Slo, summarize
from tests.sim.runs import synthetic_run
from tests.sim.small import STRIDE, asked, content, played, setup, trace


def coming(*times: float) -> Trace:
    return trace(*(asked(at, when, [at]) for at, when in enumerate(times)))


def test_the_busiest_rate_is_that_of_the_shortest_half() -> None:
    assert busiest_rate(coming(0, 10, 11, 12, 13, 100, 200, 300)) == 4 / (13 - 0)
    assert busiest_rate(coming(*range(0, 100, 2))) == 0.5


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=30, unique=True), st.floats(0.1, 10))
def test_the_busiest_rate_is_that_of_no_longer_half(times: list[int], factor: float) -> None:
    small = coming(*sorted(map(float, times)))
    half = len(times) // 2
    at = sorted(times)
    assert busiest_rate(small) == half / min(
        at[first + half] - at[first] for first in range(len(at) - half)
    )
    assert busiest_rate(small.faster(factor)) == pytest.approx(factor * busiest_rate(small))


@pytest.mark.parametrize("times", [(0,), (0, 0, 0, 0), (0, 0, 0, 5), ()])
def test_a_trace_whose_half_comes_at_once_has_no_rate(times: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="trace small: half of it comes at once"):
        busiest_rate(coming(*times))


def run_ending(ended: list[float]):  # type: ignore[no-untyped-def]
    run = synthetic_run(count=len(ended))
    return replace(run, requests=replace(run.requests, ended=np.array(ended)))


def test_the_saturated_rate_leaves_out_both_ends() -> None:
    middle = [10 + at / 4 for at in range(16)]
    assert saturated_rate(run_ending([1, 2, *middle, 100, 900])) == 4
    with_refused = [float("nan")] * 3 + [*reversed([1, 2, *middle, 100, 900])]
    assert saturated_rate(run_ending(with_refused)) == 4


@pytest.mark.parametrize("ended", [[], [3.0], [2.0, 2.0], [float("nan")] * 4])
def test_too_few_answers_have_no_saturated_rate(ended: list[float]) -> None:
    with pytest.raises(ValueError, match="too few of them"):
        saturated_rate(run_ending(ended))


def test_workers_are_kept_busy_to_find_the_most_that_they_serve() -> None:
    setting = saturating(Setting(setup(2000), 2, STRIDE))
    assert setting.closed_loop == 2 * SATURATING
    small = Trace(
        "small",
        [Request(at, 0.0, content(array("I", [at]), 4), 20) for at in range(2000)],
    )
    run = played(small, setting, "least_loaded")
    # One step computes all that run, 8 on each worker; prompts are short.
    step = setting.setup.step_time.of_generations(8, 8 * 14, 1)
    assert saturated_rate(run) == pytest.approx(2 * 8 / (20 * step), rel=0.2)


def test_who_waits_for_answers_comes_later_than_the_trace_says() -> None:
    """A chain of five, each a second of the trace after the last, and answers that take longer."""
    chain = [asked(0, 0.0, [0]), *(asked(at, at, [at], after=at - 1) for at in range(1, 5))]
    setting = Setting(setup(), 1, STRIDE, service_seconds=4.0)
    run = played(trace(*chain), setting)
    assert busiest_rate(trace(*chain)) == 1.0
    assert summarize(run, Slo()).busiest_rate == pytest.approx(0.25, rel=0.01)
