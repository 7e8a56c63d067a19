"""The simulator beside what it simulates: three workers, a gateway and a Redis, as processes.

The model is random and small, yet large enough that computing it takes longer than all that the
simulator leaves out. A worker of the same kind is calibrated alone before. The load is light, since
three workers and their clients share the cores of one machine, and what they take from each other
there, workers with a GPU each would not.
"""

import asyncio
import os
import time
from array import array
from pathlib import Path
from random import Random
from statistics import mean

import psutil
import pytest
from radixgate.client import Client

from sim.hardware.calibrate import Calibration, Limits, calibrate
from sim.ideal import ideal_cached
from sim.policy.catalogue import policy
from sim.request import Content, Request, Trace
from sim.results import Run
from sim.run import simulate
from sim.setting import Setting
from tests.e2e.processes import Fleet, free_port, wait_until
from tests.models import VOCAB_SIZE, make_tiny
from tests.sim.replay import Answered, replay

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

WORKERS, STRIDE = 3, 64
REQUESTS, DOCUMENTS = 160, 24
LOAD = 0.15
WORKER_OPTIONS = ("--kv-memory", "144MiB", "--max-running", "16")
LIMITS = Limits(max_running=16)

# Of all cores, how much others may take; with more, times mean nothing, nor do decisions by them.
QUIET = 0.05
ATTEMPTS = 2


@pytest.fixture(scope="session")
def small_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "small-llama"
    return make_tiny(directory, "llama", layers=24, heads=16)


def questions(seconds: float) -> Trace:
    """Questions about documents, some of which are asked about often, at random times.

    Args: `seconds` between two of them, on average.
    """
    rng = Random(5)
    weights = [1 / (1 + rank) for rank in range(DOCUMENTS)]
    fresh = iter(range(10_000, 2**31))
    requests, at = [], 0.0
    for number in range(REQUESTS):
        (document,) = rng.choices(range(DOCUMENTS), weights)
        length = 4 + document % 8
        own = rng.randrange(1, 4)
        ids = array("I", [100 * document + part for part in range(length)])
        ids.extend(next(fresh) for _ in range(own))
        prompt = Content(ids, STRIDE, (length + own) * STRIDE - rng.randrange(STRIDE))
        requests.append(Request(number, at, prompt, output_tokens=rng.randrange(8, 25)))
        at += rng.expovariate(1 / seconds) if seconds else 0.0
    return Trace("questions", requests)


def alone_seconds(calibration: Calibration, trace: Trace) -> float:
    """What a request of `trace` takes with nothing cached, on average."""
    step_time = calibration.setup.step_time
    total = sum(
        step_time.prompt_token * each.prompt.tokens
        + step_time.pair * each.prompt.tokens**2 / 2
        + step_time.of_generations(1, each.prompt.tokens, each.output_tokens)
        for each in trace.requests
    )
    return total / len(trace.requests)


def calibrated(fleet: Fleet, model: Path, name: str) -> Calibration:
    """A worker that reports to nobody, and is gone afterwards."""
    port = str(free_port())
    worker = fleet.worker(name, model, [], "--port", port, *WORKER_OPTIONS).start()
    found = calibrate(f"127.0.0.1:{port}", LIMITS)
    worker.stop()
    return found


class Others:
    """Meters the work on this machine that is not of this test and the processes it has ended."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._before = self._seconds()

    def share(self) -> float:
        """Of all cores, since the beginning."""
        elapsed = time.monotonic() - self._began
        return (self._seconds() - self._before) / (elapsed * psutil.cpu_count())

    @staticmethod
    def _seconds() -> float:
        everybody, own = psutil.cpu_times(), os.times()
        busy = sum(everybody) - everybody.idle - everybody.iowait
        return busy - own.user - own.system - own.children_user - own.children_system


def live(fleet: Fleet, model: Path, trace: Trace) -> list[Answered]:
    """The trace at real processes, whose caches are empty at first."""
    redis_port, port = free_port(), free_port()
    parts = [fleet.redis(redis_port), fleet.gateway(port, redis_port)]
    for part in parts:
        part.start()
    workers = [fleet.worker(f"w{at}", model, [port], *WORKER_OPTIONS) for at in range(WORKERS)]
    for worker in workers:
        worker.launch()
    for worker in workers:
        worker.wait_ready()
    with Client(f"127.0.0.1:{port}") as client:
        wait_until(lambda: len(client.workers()) == WORKERS, 10, "all workers are known")
    answers = asyncio.run(replay(trace, f"127.0.0.1:{port}", VOCAB_SIZE))
    for part in (*workers, *reversed(parts)):
        part.stop()
    return answers


def simulated(calibration: Calibration, trace: Trace) -> Run:
    setting = Setting(calibration.setup, WORKERS, STRIDE)
    ideal = ideal_cached(trace, STRIDE)
    return simulate(trace, setting, policy("cost"), name="cost", ideal=ideal)


def test_live_workers_do_what_the_simulator_says(fleet: Fleet, small_llama: Path) -> None:
    for attempt in range(ATTEMPTS):
        others = Others()
        calibration = calibrated(fleet, small_llama, f"alone-{attempt}")
        alone = alone_seconds(calibration, questions(0.0))
        trace = questions(alone / (WORKERS * LOAD))
        answers = live(fleet, small_llama, trace)
        if (share := others.share()) < QUIET:
            break
    else:
        pytest.skip(f"others took {share:.0%} of the cores, in the last of {ATTEMPTS} attempts")
    run = simulated(calibration, trace)

    prompt_tokens = sum(each.prompt_tokens for each in answers)
    assert run.requests.prompt_tokens.sum() == prompt_tokens
    hit_rate = sum(each.cached_tokens for each in answers) / prompt_tokens
    simulated_hit_rate = run.requests.cached.sum() / prompt_tokens
    ttft = mean(each.ttft_seconds for each in answers)
    simulated_ttft = (run.requests.first_token - run.requests.arrived).mean()
    print(
        f"hit rate: live {hit_rate:.3f}, simulated {simulated_hit_rate:.3f}; "
        f"mean TTFT: live {ttft * 1000:.1f} ms, simulated {simulated_ttft * 1000:.1f} ms; "
        f"others took {share:.0%} of the cores"
    )
    assert run.workers.evicted_blocks.sum() > 0, "the trace is too small for the memory to matter"
    assert simulated_hit_rate == pytest.approx(hit_rate, abs=0.02)
    assert simulated_ttft == pytest.approx(ttft, rel=0.2)
