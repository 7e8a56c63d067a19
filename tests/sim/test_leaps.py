"""Leaps are exact: a worker that takes every step by itself does the same at the same times.

Save that who asks for half of an answer that is under way does not find it before a leap lands.
"""

from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.hardware.presets import preset
from sim.hardware.setup import WorkerSetup
from sim.request import Request, Trace
from sim.results import Run
from sim.setting import Setting
from sim.worker.base import GAP_UNIT
from sim.worker.engine import EngineWorker
from sim.worker.leap import Leap
from tests.sim.small import BLOCK, STRIDE, asked, content, played, setup, trace, traces


class Stepwise(EngineWorker):
    """Never leaps."""

    def _most_steps(self) -> int:
        return 1


def stepwise(small: Trace, setting: Setting) -> Run:
    with patch("sim.simulation.EngineWorker", Stepwise):
        return played(small, setting)


def narrow(**others: st.SearchStrategy[int]) -> st.SearchStrategy[WorkerSetup]:
    return st.builds(
        setup,
        eviction=st.sampled_from(["lru", "cost"]),
        # NOTE: so that no prompt is cut by the rates, which know the mean of a leap and no more.
        chunk_seconds=st.just(1e3),
        **others,
    )


@st.composite
def bursts(draw: st.DrawFn) -> Trace:
    """Requests that come while others generate, and begin alike or not.

    As in `traces`, nobody comes at the very end of a step.
    """
    at, requests = 0.0, []
    for number in range(draw(st.integers(3, 9))):
        at += draw(st.sampled_from([0.0, 0.0203, 0.0507]))
        ids = [draw(st.integers(0, 1))] * draw(st.integers(1, 6))
        prompt = content(ids, len(ids) * BLOCK - draw(st.integers(0, 1)))
        requests.append(Request(number, at, prompt, draw(st.sampled_from([1, 8, 14]))))
    return Trace("bursts", requests)


@given(traces(), narrow(num_blocks=st.integers(8, 40), max_running=st.integers(1, 8)))
def test_leaps_are_exact(small: Trace, worker: WorkerSetup) -> None:
    both_do_the_same(small, worker)


@settings(max_examples=300)
@given(bursts(), narrow(num_blocks=st.integers(10, 18), max_running=st.integers(1, 4)))
def test_leaps_are_exact_where_memory_is_short(small: Trace, worker: WorkerSetup) -> None:
    both_do_the_same(small, worker)


def test_who_waits_for_memory_may_be_admitted_when_a_block_is_evicted() -> None:
    """What the one that runs takes is cached, and decides which of the others is next."""
    prompts = [(0.0, [0, 0], 1), (0.0, [0], 1), (0.0, [1] * 5, 14), (0.0, [0], 1)]
    prompts += [(0.02, [0] * 4, 1), (0.02, [1, 1], 1), (0.02, [0], 1)]
    small = [
        asked(number, at, ids, output_tokens=tokens)
        for number, (at, ids, tokens) in enumerate(prompts)
    ]
    both_do_the_same(trace(*small), setup(num_blocks=10, max_running=2, chunk_seconds=1e3))


@given(st.integers(1, 64), st.integers(100, 200_000), st.floats(0, 5000), st.integers(1, 100))
def test_no_step_begins_at_the_end_of_a_leap(
    generations: int, context: int, began: float, steps: int
) -> None:
    leap = Leap(generations, context, began, steps, preset("h100-llama-8b").step_time)
    assert leap.steps_by(leap.ends) == steps


def test_who_end_at_once_leave_in_the_order_in_which_they_run() -> None:
    """The last to leave is the last to be evicted, though it filled a block before the other."""
    both_end_at_once = [
        asked(0, 0.0, [0], output_tokens=4),
        Request(1, 0.0, content([1, 1], 2 * BLOCK - 1), 3),
    ]
    evicts_a_block, asks_for_it = asked(2, 1.0, [2] * 5), asked(3, 2.0, [0])
    small = trace(*both_end_at_once, evicts_a_block, asks_for_it)
    both_do_the_same(small, setup(num_blocks=8, chunk_seconds=1e3))


def both_do_the_same(small: Trace, worker: WorkerSetup) -> None:
    small = Trace("unknown answers", [replace(each, output=None) for each in small.requests])
    setting = Setting(worker, 1, STRIDE)
    run, expected = played(small, setting), stepwise(small, setting)
    for name in ("arrived", "sent", "started", "first_token", "ended"):
        ours, theirs = getattr(run.requests, name), getattr(expected.requests, name)
        assert ours == pytest.approx(theirs, abs=1e-9, nan_ok=True), name
    for name in ("worker", "cached", "output_tokens", "preemptions"):
        assert list(getattr(run.requests, name)) == list(getattr(expected.requests, name)), name
    assert list(run.workers.steps) == list(expected.workers.steps)
    assert list(run.workers.evicted_blocks) == list(expected.workers.evicted_blocks)
    assert run.workers.busy_seconds == pytest.approx(expected.workers.busy_seconds)
    assert run.gap_counts.sum() == expected.gap_counts.sum()
    assert gap_seconds(run) == pytest.approx(
        gap_seconds(expected), abs=GAP_UNIT * expected.gap_counts.sum()
    )


def gap_seconds(run: Run) -> float:
    return float((run.gaps * run.gap_counts).sum())
