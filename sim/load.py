"""How much a trace asks of workers, as a share of what they can serve at most.

A load of 1 is the rate at which they get through the trace when the next request is always there
already, with our own policy. It is compared with the rate at which requests come while the trace is
busiest, so that a long and quiet end does not hide that.

That is the rate by the times of the trace. A request that follows on another one is sent after its
answer, however late that is, so where many do, fewer come, and the more so the faster a trace is
played.
"""

import math
from dataclasses import replace
from typing import Final

import numpy as np

from sim.request import Trace
from sim.results import Floats, Run
from sim.setting import Setting

SATURATING: Final = 32
"""Requests under way for each worker that keep it busy."""

POLICY: Final = "cost"
"""By which the most that workers can serve is found."""


def saturating(setting: Setting) -> Setting:
    """The same workers, and clients that keep them busy."""
    return replace(setting, closed_loop=SATURATING * setting.workers)


def saturated_rate(run: Run) -> float:
    """Requests a second of a run in a closed loop, without its first and its last tenth.

    Raises:
        ValueError: too few requests ended, or all at once.
    """
    ended = np.sort(run.requests.ended[np.isfinite(run.requests.ended)])
    middle = ended[len(ended) // 10 : len(ended) - len(ended) // 10]
    span = float(middle[-1] - middle[0]) if len(middle) else 0.0
    if not span:
        raise ValueError(
            f"trace {run.trace}: of its requests {len(ended)} were served, too few of them one "
            f"after the other to see how fast workers are"
        )
    return (len(middle) - 1) / span


def busiest_rate(trace: Trace) -> float:
    """Requests a second of the shortest time in which half of a trace comes, if no answer is late.

    Raises:
        ValueError: they all come at once.
    """
    rate = rate_of_busiest_half(np.array([request.at for request in trace.requests]))
    if not math.isfinite(rate):
        raise ValueError(f"trace {trace.name}: half of it comes at once, so it has no rate")
    return rate


def rate_of_busiest_half(at: Floats) -> float:
    """Of requests that come `at` these ascending seconds: the most a second that half of them come.

    Infinite when these come at once, or there is none.
    """
    half = len(at) // 2
    shortest = float(np.min(at[half:] - at[: len(at) - half])) if half else 0.0
    return half / shortest if shortest else math.inf
