"""What holds of every run, whatever the trace, the workers and the policy."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.policy.catalogue import CATALOGUE, policy
from sim.request import Trace
from sim.setting import Setting
from sim.simulation import Simulation
from tests.sim.small import STRIDE, played, same, setup, traces

POLICIES = st.sampled_from(list(CATALOGUE))
SETTINGS = st.builds(
    Setting,
    setup=st.builds(
        setup,
        num_blocks=st.integers(4, 40),
        max_running=st.integers(1, 8),
        token_budget=st.integers(8, 40),
        eviction=st.sampled_from(["lru", "cost"]),
    ),
    workers=st.integers(1, 3),
    stride=st.just(STRIDE),
    seed=st.integers(0, 3),
    closed_loop=st.none() | st.integers(1, 5),
    service_seconds=st.none() | st.just(0.01),
)


@given(traces(), SETTINGS, POLICIES)
def test_every_request_ends_once_or_is_refused_once(
    small: Trace, setting: Setting, name: str
) -> None:
    ended = 0

    def count() -> None:
        nonlocal ended
        ended += 1

    run = played(small, setting, name, progress=count)
    assert ended == len(small.requests)
    generates = setting.service_seconds is None
    refused = [
        each.prompt.tokens + (each.output_tokens if generates else 1) > setting.setup.kv_tokens
        for each in small.requests
    ]
    assert list(run.requests.worker < 0) == refused
    assert sum(run.refusals.values()) == sum(refused)
    assert run.workers.requests.sum() + sum(refused) == len(small.requests)


@given(traces(), SETTINGS, POLICIES)
def test_tokens_add_up(small: Trace, setting: Setting, name: str) -> None:
    run = played(small, setting, name)
    each = run.requests
    fates = (each.cached, each.stale, each.elsewhere, each.evicted, each.new)
    assert all((fate >= 0).all() for fate in fates)
    assert list(np.sum(fates, 0)) == [request.prompt.tokens for request in small.requests]
    assert list(each.prompt_tokens) == [request.prompt.tokens for request in small.requests]
    served = each.worker >= 0
    assert list(each.output_tokens) == [
        request.output_tokens if served[request.number] else 0 for request in small.requests
    ]
    if setting.service_seconds is None:
        assert run.gap_counts.sum() == (each.output_tokens[served] - 1).sum()
        between = (each.ended - each.first_token)[served].sum()
        assert (run.gaps * run.gap_counts).sum() == pytest.approx(between, abs=1e-3)


@given(traces(), SETTINGS, POLICIES)
def test_times_are_in_order(small: Trace, setting: Setting, name: str) -> None:
    run = played(small, setting, name)
    each, served = run.requests, run.requests.worker >= 0
    moments = [each.arrived, each.sent, each.started, each.first_token, each.ended]
    assert np.isfinite(each.arrived).all()
    for before, after in pairwise(moments):
        assert (before[served] <= after[served]).all()
        assert np.isnan(after[~served]).all()
    assert (np.diff(run.samples.at) > 0).all()
    if setting.closed_loop is None:
        assert all(each.arrived[request.number] >= request.at for request in small.requests)


@given(traces(), SETTINGS, POLICIES)
def test_workers_compute_no_longer_than_there_is_time(
    small: Trace, setting: Setting, name: str
) -> None:
    run = played(small, setting, name)
    each = run.requests
    last = np.fmax(each.arrived, each.ended).max()
    assert (run.workers.busy_seconds <= last * (1 + 1e-9)).all()
    assert (run.samples.used_blocks <= setting.setup.num_blocks).all()
    if setting.service_seconds is None:
        assert (run.samples.running <= setting.setup.max_running).all()


@given(traces(), SETTINGS, POLICIES)
def test_workers_are_intact_at_all_times(small: Trace, setting: Setting, name: str) -> None:
    simulation: list[Simulation] = []

    def check() -> None:
        for worker in simulation[0].workers:
            worker._manager.check_integrity()

    simulation.append(Simulation(small, setting, policy(name), check))
    simulation[0].run()


@given(traces(), SETTINGS, POLICIES)
def test_equal_seeds_make_equal_runs(small: Trace, setting: Setting, name: str) -> None:
    assert same(played(small, setting, name), played(small, setting, name))
