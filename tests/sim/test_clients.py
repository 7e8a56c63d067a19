"""How clients send a trace, and what a policy must not do with it."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.at_gateway import PATIENCE_SECONDS
from sim.policy.base import Choice, Job, Policy, Site
from sim.policy.round_robin import RoundRobin
from sim.request import Request, Trace
from sim.setting import Setting
from sim.simulation import NETWORK_SECONDS, Simulation
from tests.sim.small import STRIDE, asked, played, setup, trace, traces

SETTING = Setting(setup(), 2, STRIDE)
LONG = 100


def under_way(arrived: np.ndarray, ended: np.ndarray, at: float) -> int:
    return int(((arrived <= at) & (ended > at)).sum())


@given(traces(most=20), st.integers(1, 6), st.sampled_from([None, 0.01]))
def test_a_closed_loop_keeps_so_many_under_way(
    small: Trace, clients: int, service: float | None
) -> None:
    setting = Setting(setup(), 2, STRIDE, closed_loop=clients, service_seconds=service)
    each = played(small, setting).requests
    for number, at in enumerate(each.arrived):
        left = len(small.requests) - number
        if left >= clients:
            assert under_way(each.arrived, each.ended, at) == clients
        else:
            assert under_way(each.arrived, each.ended, at) <= clients
    over = sorted(np.where(each.worker < 0, each.arrived, each.ended))
    first = min(clients, len(small.requests))
    assert list(each.arrived) == [0.0] * first + over[: len(small.requests) - first]


def test_a_closed_loop_goes_on_after_refusals() -> None:
    small = trace(*(asked(at, 0.0, [at] * (LONG if at % 2 else 1)) for at in range(40)))
    run = played(small, Setting(setup(), 2, STRIDE, closed_loop=3))
    assert sum(run.refusals.values()) == 20
    assert np.isfinite(run.requests.ended).sum() == 20


@given(traces())
def test_followers_wait_for_the_answer_and_think(small: Trace) -> None:
    each = played(small, SETTING).requests
    for request in small.requests:
        came = each.arrived[request.number]
        if request.after is None:
            assert came == request.at
        else:
            assert came == max(request.at, each.ended[request.after] + request.think)


def test_who_follows_a_refused_request_comes_as_if_it_had_ended() -> None:
    small = trace(asked(0, 1.0, [0] * LONG), asked(1, 1.5, [1], after=0, think=2.0))
    run = played(small, SETTING)
    assert list(run.requests.worker) == [-1, 0]
    assert run.requests.arrived[1] == 3.0


def test_what_no_worker_can_hold_is_refused_and_said() -> None:
    run = played(trace(asked(0, 0.0, [0] * LONG), asked(1, 0.0, [1])), SETTING)
    assert run.refusals == {"longer than the KV memory of a worker, 256 tokens": 1}
    assert run.requests.new[0] == run.requests.prompt_tokens[0] == 4 * LONG
    assert run.requests.output_tokens[0] == 0


def test_a_policy_may_refuse() -> None:
    class Doorman(RoundRobin):
        def arrived(self, job: Job) -> None:
            if job.number % 2:
                self.site.refuse(job, "odd")
            else:
                super().arrived(job)

    run = played(trace(*(asked(at, 0.0, [at]) for at in range(5))), SETTING, Doorman)
    assert run.refusals == {"odd": 2}
    assert list(run.requests.worker < 0) == [False, True, False, True, False]


class Keeper(RoundRobin):
    """Keeps what comes for `seconds`, and looks again as often."""

    seconds = 1e9

    def arrived(self, job: Job) -> None:
        site = self.site
        due = site.now + self.seconds

        def look() -> None:
            if site.now >= due:
                site.send(job, self.choose(job))
            else:
                site.call_at(site.now + 1, look)

        look()


@pytest.mark.parametrize("closed_loop", [None, 2])
def test_a_policy_that_never_sends_is_an_error(closed_loop: int | None) -> None:
    small = trace(*(asked(at, float(at), [at]) for at in range(5)))
    setting = Setting(setup(), 2, STRIDE, closed_loop=closed_loop)
    with pytest.raises(RuntimeError, match=r"keeps \d requests? while all workers are idle"):
        played(small, setting, Keeper)


def test_a_policy_may_keep_requests_for_a_while() -> None:
    class Patient(Keeper):
        seconds = PATIENCE_SECONDS / 2

    small = trace(*(asked(at, at * PATIENCE_SECONDS * 3, [at]) for at in range(3)))
    each = played(small, SETTING, Patient).requests
    assert list(each.sent - each.arrived) == [Patient.seconds] * 3


def test_waiting_for_a_client_that_thinks_is_no_error() -> None:
    small = trace(asked(0, 0.0, [0]), asked(1, 0.0, [1], after=0, think=10 * PATIENCE_SECONDS))
    assert played(small, SETTING).requests.arrived[1] > 10 * PATIENCE_SECONDS


class Twice(RoundRobin):
    def arrived(self, job: Job) -> None:
        super().arrived(job)
        super().arrived(job)


class SentAndRefused(RoundRobin):
    def arrived(self, job: Job) -> None:
        super().arrived(job)
        self.site.refuse(job, "too late")


class RefusedTwice(RoundRobin):
    def arrived(self, job: Job) -> None:
        self.site.refuse(job, "first")
        self.site.refuse(job, "second")


@pytest.mark.parametrize("policy", [Twice, SentAndRefused, RefusedTwice])
def test_a_policy_that_answers_twice_is_an_error(policy: Callable[[Site], Policy]) -> None:
    with pytest.raises(RuntimeError, match="request 0 is not at the gateway"):
        played(trace(asked(0, 0.0, [0]), asked(1, 0.0, [1])), SETTING, policy)


class Witness(RoundRobin):
    """Writes down what it is told, and when."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.heard: list[tuple[str, int, float]] = []

    def choose(self, job: Job) -> Choice:
        self.heard.append(("arrived", job.number, self.site.now))
        return super().choose(job)

    def started(self, job: Job, worker: str, cached_tokens: int) -> None:
        self.heard.append(("started", job.number, self.site.now))

    def first_token(self, job: Job, worker: str) -> None:
        self.heard.append(("first_token", job.number, self.site.now))

    def ended(self, job: Job, worker: str) -> None:
        self.heard.append(("ended", job.number, self.site.now))


@given(traces())
def test_a_policy_hears_of_each_request_in_order_and_time_never_goes_back(small: Trace) -> None:
    simulation = Simulation(small, SETTING, Witness)
    simulation.run()
    witness = simulation._policy
    assert isinstance(witness, Witness)
    times = [at for _, _, at in witness.heard]
    assert times == sorted(times)
    requests = simulation.recorder.requests()
    for number, each in enumerate(zip(requests.started, requests.first_token, strict=True)):
        told = [(what, at) for what, which, at in witness.heard if which == number]
        names = ["arrived", "started", "first_token", "ended"]
        assert [what for what, _ in told] == names[: len(told)]
        moments = [requests.arrived[number], *(at + NETWORK_SECONDS for at in each)]
        assert [at for _, at in told[:3]] == moments[: len(told[:3])]


def test_a_trace_without_requests_is_over_at_once() -> None:
    run = played(Trace("nothing", list[Request]()), SETTING)
    assert len(run.requests.arrived) == 0
    assert list(run.workers.requests) == [0, 0]
