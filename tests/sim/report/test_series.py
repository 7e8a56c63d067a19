"""Plots show what was measured, in few points."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.report.series import cumulative_ttft, hit_rate, ideal_hit_rate, load
from sim.results import Run
from sim.summary import Slo, summarize, ttfts
from tests.sim.runs import synthetic_run

runs = st.builds(
    synthetic_run,
    count=st.sampled_from([0, 1, 7, 900]),
    refused=st.sampled_from([0.0, 0.4, 1.0]),
    seed=st.integers(0, 100),
)


@given(runs)
def test_cumulative_ttft_is_a_share_of_all_requests(run: Run) -> None:
    x, y = cumulative_ttft(run)
    waited = ttfts(run)
    assert len(x) <= 400
    assert list(x) == sorted(x)
    assert list(y) == [pytest.approx((waited <= each).mean()) for each in x]
    if len(x):
        assert y[-1] == pytest.approx(np.isfinite(waited).mean())


@given(runs, st.integers(1, 30))
def test_hit_rates_of_windows_average_to_that_of_the_run(run: Run, windows: int) -> None:
    summary, every = summarize(run, Slo()), run.requests
    for series, expected in (
        (hit_rate(run, windows), summary.hit_rate),
        (ideal_hit_rate(run, windows), summary.ideal_hit_rate),
    ):
        if not len(every.arrived):
            assert not len(series.x)
            continue
        first, last = every.arrived[0], every.arrived[-1]
        edges = np.linspace(first, max(last, first + 1e-9), windows + 1)
        edges[-1] = np.inf
        weights = [
            sum(
                tokens
                for at, tokens in zip(every.arrived, every.prompt_tokens, strict=True)
                if start <= at < stop
            )
            for start, stop in pairwise(edges)
        ]
        shown = [weight for weight in weights if weight]
        assert len(shown) == len(series.y)
        assert np.average(series.y, weights=shown) == pytest.approx(expected)


def slow_load(run: Run, start: float, stop: float, last: bool) -> list[float] | None:
    """Mean of each worker in one window; None without a sample."""
    of = run.samples
    inside = [i for i, at in enumerate(of.at) if start <= at < stop or (last and at == stop)]
    if not inside:
        return None
    return list((of.running[inside] + of.waiting[inside]).mean(axis=0))


@given(runs, st.integers(1, 30), st.sampled_from([1, 5]))
def test_load_is_the_mean_of_the_samples(run: Run, windows: int, gap: int) -> None:
    thinned = np.r_[0 : len(run.samples.at) : gap]
    late = np.where(run.samples.at > 10, 40.0, 0.0) + run.samples.at
    samples = replace(
        run.samples,
        at=late[thinned],
        running=run.samples.running[thinned],
        waiting=run.samples.waiting[thinned],
    )
    run = replace(run, samples=samples)
    edges, values = load(run, windows)
    assert values.shape == (samples.running.shape[1], len(edges) - 1)
    assert len(edges) - 1 <= windows
    before = None
    for place, (start, stop) in enumerate(pairwise(edges)):
        expected = slow_load(run, start, stop, place == len(edges) - 2) or before
        assert list(values[:, place]) == [pytest.approx(each) for each in expected or []]
        before = expected


def test_a_run_without_samples_has_no_load() -> None:
    run = synthetic_run(count=3, workers=2)
    none = replace(
        run.samples,
        at=run.samples.at[:0],
        running=run.samples.running[:0],
        waiting=run.samples.waiting[:0],
    )
    assert load(replace(run, samples=none)).values.tolist() == [[0.0], [0.0]]
