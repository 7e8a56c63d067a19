"""A policy over a trace, from beginning to end."""

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from sim.policy.base import Policy, Site
from sim.request import Trace
from sim.results import Ints, Run, Workers
from sim.setting import Setting
from sim.simulation import Simulation
from sim.worker.base import GAP_UNIT


def simulate(
    trace: Trace,
    setting: Setting,
    policy: Callable[[Site], Policy],
    *,
    name: str,
    ideal: Ints,
    labels: Mapping[str, str] | None = None,
    progress: Callable[[], None] = lambda: None,
) -> Run:
    """Play `trace`.

    Args:
        trace: what is asked.
        setting: of workers and clients.
        policy: makes the policy.
        name: of the policy.
        ideal: as `sim.ideal` says of the trace.
        labels: what distinguishes the run, for people.
        progress: told of each request that has ended.
    """
    began = time.perf_counter()
    simulation = Simulation(trace, setting, policy, progress)
    with _nothing_collected():
        simulation.run()
    workers, recorder = simulation.workers, simulation.recorder
    gaps: Counter[int] = Counter()
    for worker in workers:
        gaps.update(worker.gaps)
    order = sorted(gaps)
    return Run(
        policy=name,
        trace=trace.name,
        settings=dict(labels or {}),
        gpus=setting.workers * setting.setup.gpus,
        requests=recorder.requests(),
        workers=Workers(
            busy_seconds=np.array([worker.busy_seconds for worker in workers]),
            steps=np.array([worker.steps for worker in workers]),
            evicted_blocks=np.array([worker.evicted_blocks for worker in workers]),
            requests=recorder.served(),
        ),
        samples=simulation.sampling.samples(),
        gaps=np.array(order) * GAP_UNIT,
        gap_counts=np.array([gaps[gap] for gap in order], np.int64),
        ideal_cached=ideal,
        wall_seconds=time.perf_counter() - began,
        refusals=dict(recorder.refusals),
    )


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Python does not look for circles of garbage: there are none until the end of a simulation,
    and to look for them is to walk through all caches, again and again.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
