"""Summaries are what a loop over the requests counts."""

import math
from dataclasses import asdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.results import Run
from sim.summary import Slo, Spread, Summary, summarize
from tests.sim.runs import synthetic_run

SLO = Slo(ttft_seconds=0.6, itl_seconds=0.04)
runs = st.builds(
    synthetic_run,
    count=st.integers(0, 30),
    workers=st.integers(1, 5),
    refused=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 10_000),
)


def slow_percentile(values: list[float], percent: int) -> float:
    """The least value that `percent` of 100 do not exceed."""
    for value in sorted(values):
        if Fraction(sum(other <= value for other in values), len(values)) * 100 >= percent:
            return value
    return math.nan


def slow_spread(values: list[float]) -> Spread:
    finite = [value for value in values if math.isfinite(value)]
    mean = sum(finite) / len(finite) if finite else math.nan
    return Spread(mean, *(slow_percentile(values, percent) for percent in (50, 90, 99)))


def slow_busiest(at: list[float]) -> float:
    half = len(at) // 2
    spans = [at[first + half] - at[first] for first in range(len(at) - half)] if half else []
    return half / min(spans) if spans and min(spans) else math.inf


def slow_summary(run: Run, slo: Slo) -> dict[str, object]:
    """Of each field that is computed, by a loop."""
    every = run.requests
    asked = shares = refused = good = preemptions = output = 0
    shares = dict.fromkeys(("cached", "stale", "elsewhere", "evicted", "new", "unserved"), 0)
    firsts, last = [], -math.inf
    for i, worker in enumerate(every.worker):
        asked += every.prompt_tokens[i]
        last = max(last, every.arrived[i])
        preemptions += every.preemptions[i]
        if worker < 0:
            refused += 1
            shares["unserved"] += every.prompt_tokens[i]
            firsts.append(math.inf)
            continue
        last = max(last, every.ended[i])
        output += every.output_tokens[i]
        for fate in ("cached", "stale", "elsewhere", "evicted", "new"):
            shares[fate] += getattr(every, fate)[i]
        first = every.first_token[i] - every.arrived[i]
        firsts.append(first)
        gaps = every.output_tokens[i] - 1
        itl = (every.ended[i] - every.first_token[i]) / gaps if gaps else 0.0
        good += first <= slo.ttft_seconds and itl <= slo.itl_seconds
    count = len(firsts)
    seconds = last - min(every.arrived) if count else 0.0
    busy, served = run.workers.busy_seconds, run.workers.requests

    def ratio(part: float, whole: float) -> float:
        return part / whole if whole else math.nan

    return {
        "requests": count,
        "refused": refused,
        "busiest_rate": slow_busiest(sorted(every.arrived)),
        "seconds": seconds,
        "prompt_tokens": asked,
        "output_tokens": output,
        "hit_rate": ratio(shares.pop("cached"), asked),
        **{fate: ratio(tokens, asked) for fate, tokens in shares.items()},
        "ideal_hit_rate": ratio(sum(run.ideal_cached), asked),
        "ttft": asdict(slow_spread(firsts)),
        "itl": asdict(slow_spread(list(np.repeat(run.gaps, run.gap_counts)))),
        "good_share": ratio(good, count),
        "goodput": ratio(good, seconds),
        "request_imbalance": ratio(max(served) * len(served), sum(served)),
        "busy_imbalance": ratio(max(busy) * len(busy), sum(busy)),
        "utilisation": ratio(sum(busy) / len(busy), seconds),
        "evicted_blocks": sum(run.workers.evicted_blocks),
        "preemptions": preemptions,
    }


@given(runs)
def test_summary_is_what_a_loop_counts(run: Run) -> None:
    summary = asdict(summarize(run, SLO))
    expected = slow_summary(run, SLO)
    assert {name: summary[name] for name in expected} == _close(expected)
    assert summary["workers"] == len(run.workers.requests)
    assert {name: summary[name] for name in ("policy", "trace", "settings", "gpus")} == {
        "policy": run.policy,
        "trace": run.trace,
        "settings": run.settings,
        "gpus": run.gpus,
    }


def _close(value: object) -> object:
    if isinstance(value, dict):
        return {name: _close(each) for name, each in value.items()}
    return pytest.approx(float(value), nan_ok=True)  # type: ignore[arg-type]


@given(runs)
def test_every_prompt_token_has_one_fate(run: Run) -> None:
    summary = summarize(run, SLO)
    if summary.prompt_tokens:
        assert sum(_fates(summary)) == pytest.approx(1)
        assert summary.hit_rate <= summary.ideal_hit_rate + 1e-9


def _fates(of: Summary) -> tuple[float, ...]:
    return of.hit_rate, of.stale, of.elsewhere, of.evicted, of.new, of.unserved


weighted = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.2, 0.3, math.inf]), st.integers(1, 40)), max_size=8
)


@given(weighted)
def test_spread_of_counted_values_is_that_of_all_of_them(pairs: list[tuple[float, int]]) -> None:
    values = np.array([value for value, _ in pairs])
    counts = np.array([count for _, count in pairs], np.int64)
    got = Spread.of(values, counts)
    assert asdict(got) == _close(asdict(slow_spread(list(np.repeat(values, counts)))))


def test_refusing_more_than_a_tenth_makes_p90_endless_and_leaves_the_mean() -> None:
    spread = Spread.of(np.array([1.0] * 89 + [math.inf] * 11), np.ones(100, np.int64))
    assert spread == Spread(mean=1.0, p50=1.0, p90=math.inf, p99=math.inf)


@pytest.mark.parametrize(
    "wrong", [{"ttft_seconds": 0}, {"itl_seconds": -1}, {"share": 0}, {"share": 1.1}]
)
def test_an_slo_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="SLO"):
        Slo(**wrong)
