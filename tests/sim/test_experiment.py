"""Several simulations, in this process or in several."""

import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import psutil
import pytest

from sim.experiment import Case, play
from sim.hardware.presets import preset
from sim.request import Trace
from sim.setting import Setting
from sim.trace.generate.spec import generated
from tests.sim.small import asked, same, trace

SETTING = Setting(preset("h100-llama-8b"), 3, 64)
POLICIES = ("cost", "random", "sglang", "session")


def chats(requests: int, seed: int = 1) -> Trace:
    return generated(f"chat:requests={requests},rate=20,seed={seed}")


def documents(requests: int) -> Trace:
    return generated(f"rag:requests={requests},rate=20,seed=1")


def cases(*, seed: int = 0) -> list[Case]:
    setting = replace(SETTING, seed=seed)
    return [
        Case(place, name, setting, speed, {"speed": str(speed)})
        for place in (0, 1)
        for name in POLICIES
        for speed in (1.0, 3.0)
    ]


def test_cases_are_played_in_their_order_and_progress_is_told() -> None:
    traces, told = [chats(50), documents(70)], list[int]()
    runs = play(traces, cases(), 1, told.append)
    assert [(run.policy, run.settings["speed"]) for run in runs] == [
        (case.policy, str(case.speed)) for case in cases()
    ]
    assert sum(told) == sum(len(traces[case.trace].requests) for case in cases())
    assert all(run.ideal_cached.sum() > 0 for run in runs)
    slow, fast = (run.requests.arrived[-1] for run in runs[-2:])
    assert slow == pytest.approx(3 * fast)


def test_another_seed_may_end_otherwise() -> None:
    one, other = (
        play([documents(70)], [Case(0, "random", replace(SETTING, seed=seed))], 1)[0]
        for seed in (1, 2)
    )
    assert not same(one, other)


def test_nothing_to_play() -> None:
    assert play([], [], 4) == []


@pytest.mark.slow
def test_other_processes_find_the_same_to_the_last_digit() -> None:
    traces, told = [chats(50), documents(70)], list[int]()
    alone = play(traces, cases(), 1)
    together = play(traces, cases(), 2, told.append)
    assert [same(one, other) for one, other in zip(alone, together, strict=True)] == [True] * 16
    assert sum(told) == sum(len(traces[case.trace].requests) for case in cases())
    assert not multiprocessing.active_children()


def sleep() -> None:
    time.sleep(600)


@pytest.mark.slow
def test_processes_of_others_are_left_alone() -> None:
    other = multiprocessing.get_context("spawn").Process(target=sleep)
    other.start()
    try:
        play([chats(20)], [Case(0, name, SETTING) for name in POLICIES[:2]], 2)
        assert other.is_alive()
    finally:
        other.terminate()
        other.join()


@pytest.mark.slow
def test_a_killed_process_is_an_error_and_none_is_left() -> None:
    before = set(psutil.Process().children(recursive=True))
    told = threading.Event()
    victims = list[int]()

    def kill(more: int) -> None:
        if more and not told.is_set():
            told.set()
            (victim, *_) = multiprocessing.active_children()
            assert victim.pid
            victims.append(victim.pid)
            os.kill(victim.pid, signal.SIGKILL)

    long = [Case(0, name, SETTING) for name in POLICIES]
    with pytest.raises(BrokenProcessPool):
        play([chats(3000)], long, 2, kill)
    assert victims
    assert not multiprocessing.active_children()
    left = set(psutil.Process().children(recursive=True)) - before
    # NOTE: what tracks the resources of processes stays as long as this one.
    assert all("resource_tracker" in " ".join(process.cmdline()) for process in left)


@pytest.mark.slow
def test_what_one_run_raises_is_raised_before_the_others_end() -> None:
    told = list[int]()
    long = Case(0, "cost", SETTING)
    wrong = Case(1, "random", replace(SETTING, workers=0))
    traces = [chats(20_000), trace(asked(0, 0.0, [1]))]
    with pytest.raises(IndexError):
        play(traces, [long, wrong], 2, told.append)
    assert sum(told) < 20_000
    assert not multiprocessing.active_children()
