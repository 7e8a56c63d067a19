"""Leaps are exact: a worker that takes every step by itself does the same at the same times.

Save that who asks for half of an answer that is under way does not find it before a leap lands.
"""

from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.hardware.setup import WorkerSetup
from sim.pool import Setting
from sim.request import Trace
from sim.results import Run
from sim.worker import GAP_UNIT, SimWorker
from tests.sim.small import STRIDE, played, setup, traces
from worker.engine.sequence import Sequence


class Stepwise(SimWorker):
    """Never leaps."""

    def _most_steps(self, sequences: list[Sequence], context: int) -> int:
        return 1


def stepwise(small: Trace, setting: Setting) -> Run:
    with patch("sim.pool.SimWorker", Stepwise):
        return played(small, setting)


SETUPS = st.builds(
    setup,
    num_blocks=st.integers(8, 40),
    max_running=st.integers(1, 8),
    eviction=st.sampled_from(["lru", "cost"]),
    # NOTE: so that no prompt is cut by the rates, which know the mean of a leap and no more.
    chunk_seconds=st.just(1e3),
)


@given(traces(), SETUPS, st.integers(1, 2))
def test_leaps_are_exact(small: Trace, worker: WorkerSetup, workers: int) -> None:
    small = Trace("unknown answers", [replace(each, output=None) for each in small.requests])
    setting = Setting(worker, workers, STRIDE)
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
