"""The simulator beside what it simulates: three workers, a gateway and a Redis, as processes.

The model is random and small, yet large enough that computing it takes longer than all that the
simulator leaves out. A worker of the same kind, alone behind its gateway, is calibrated before. The
load is light and the answers are short, since three workers and their clients share the cores of
one machine, and what they take from each other there, workers with a GPU each would not.
"""

import asyncio
import os
import time
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

WORKERS, STRIDE = 3, 64
REQUESTS, DOCUMENTS = 400, 24
LOAD = 0.1
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
        requests.append(Request(number, at, prompt, output_tokens=rng.randrange(4, 13)))
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


@contextmanager
def served(fleet: Fleet, model: Path, workers: Mapping[str, int]) -> Iterator[str]:
    """A Redis, a gateway and these `workers`, name and port, whose caches are empty.

    The address of the gateway, once it knows all of them; they end afterwards.
    """
    redis_port, port = free_port(), free_port()
    parts = [fleet.redis(redis_port), fleet.gateway(port, redis_port)]
    for part in parts:
        part.start()
    for name, at in workers.items():
        parts.append(fleet.worker(name, model, [port], "--port", str(at), *WORKER_OPTIONS))
        parts[-1].start()
    with Client(f"127.0.0.1:{port}") as client:
        wait_until(lambda: len(client.workers()) == len(workers), 10, "all workers are known")
    yield f"127.0.0.1:{port}"
    for part in reversed(parts):
        part.stop()


def calibrated(fleet: Fleet, model: Path, name: str) -> Calibration:
    """Of a worker that is alone behind its gateway."""
    port = free_port()
    with served(fleet, model, {name: port}) as gateway:
        return calibrate(f"127.0.0.1:{port}", LIMITS, gateway=gateway)


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
    """The trace at real processes."""
    with served(fleet, model, {f"w{at}": free_port() for at in range(WORKERS)}) as gateway:
        return asyncio.run(replay(trace, gateway, VOCAB_SIZE))


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
