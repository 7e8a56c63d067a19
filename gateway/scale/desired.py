"""How many workers a pool should have. Pure.

Each signal asks for so many workers as would bring it to its target; the largest of these is the
*need*. More than the pool has, by more than `BAND`, and it grows; so much less that the rest would
have room to spare, and it shrinks; between, it stays. So its own answer, once it is true, is given
again. Nothing known means the present size.
"""

import math
from collections.abc import Mapping
from enum import Enum
from typing import Final

from gateway.scale.signals import Signals


class Metric(Enum):
    """What may be asked for."""

    CACHE_PRESSURE = "cache_pressure"
    MISS_RATE = "miss_rate"
    QUEUE_SECONDS = "queue_seconds"
    KV_UTILIZATION = "kv_utilization"
    DESIRED_WORKERS = "desired_workers"


TARGETS: Final[Mapping[Metric, float]] = {
    Metric.CACHE_PRESSURE: 1.0,
    Metric.MISS_RATE: 0.5,
    Metric.QUEUE_SECONDS: 1.0,
    Metric.KV_UTILIZATION: 0.8,
    Metric.DESIRED_WORKERS: 1.0,
}
"""What a worker should have of each, if nobody says otherwise."""

BUSY: Final = 0.8
"""Of what workers can run or compute, so much is to be used."""

BAND: Final = 0.1
"""A change by less is none. So is it for a HorizontalPodAutoscaler, by its default tolerance, and
what it is told it should follow."""

GROWTH: Final = 2.0
"""The most by which a pool grows in one step."""

SPARE: Final = 0.2
"""So much room is left in those that stay when a pool shrinks."""

SHRINK: Final = 0.25
"""The most by which a pool shrinks in one step."""


def needs(signals: Signals) -> dict[str, float]:
    """Workers that would bring each signal to its target; 0 from those that ask for none."""
    workers = signals.workers
    wait = signals.queue_seconds / TARGETS[Metric.QUEUE_SECONDS]
    return {
        "cache": signals.cache_pressure * workers / TARGETS[Metric.CACHE_PRESSURE],
        # NOTE: short waits do not say that fewer workers would do; what these use does.
        "queue": min(wait, GROWTH) * signals.fewest_recently if wait > 1 else 0.0,
        "kv": signals.kv_utilization * workers / TARGETS[Metric.KV_UTILIZATION],
        "slots": signals.slot_utilization * workers / BUSY,
        "prefill": signals.prefill_utilization * workers / BUSY,
    }


def idle(signals: Signals) -> bool:
    """Whether nobody needs a worker, for certain."""
    if signals.traffic or signals.running:
        return False
    return signals.counted or not signals.size


def desired_workers(signals: Signals, *, scale_to_zero: bool = False) -> int:
    """The size that the pool should have.

    `scale_to_zero`: none, when nobody needs one; else it keeps its size then.
    """
    if scale_to_zero and idle(signals):
        return 0
    if not signals.workers:
        return max(signals.size, int(signals.waiting > 0))
    if not signals.traffic:
        return signals.size
    return step(max(needs(signals).values()), signals.size, shrinks=signals.settled)


def step(need: float, size: int, *, shrinks: bool) -> int:
    """The next size of a pool of `size` workers, at least 1, that needs so many.

    `shrinks`: whether it may.
    """
    if need > size * (1 + BAND):
        return min(math.ceil(need), math.ceil(size * GROWTH))
    fits = max(1, math.ceil(need / (1 - SPARE)))
    if shrinks and fits < size * (1 - BAND):
        return max(fits, size - max(1, int(size * SHRINK)))
    return size


def value(metric: Metric, signals: Signals, target: float, *, scale_to_zero: bool = False) -> float:
    """What KEDA is to be told of `metric`: the sum over all workers.

    Divided by `target` and rounded up, as a HorizontalPodAutoscaler does with an average value, it
    is the number of workers that brings the metric to its target.
    """
    if metric is Metric.DESIRED_WORKERS:
        return float(desired_workers(signals, scale_to_zero=scale_to_zero))
    if scale_to_zero and idle(signals):
        return 0.0
    known = level(metric, signals)
    return target * desired_workers(signals) if known is None else known * signals.workers


def level(metric: Metric, signals: Signals) -> float | None:
    """The metric as it is, as the mean of the workers; None where nothing is known of it."""
    if metric is Metric.DESIRED_WORKERS:
        return desired_workers(signals) or None
    if not signals.traffic or not signals.workers:
        return None
    match metric:
        case Metric.CACHE_PRESSURE:
            return signals.cache_pressure
        case Metric.MISS_RATE:
            return signals.miss_rate
        case Metric.QUEUE_SECONDS:
            return signals.queue_seconds
        case Metric.KV_UTILIZATION:
            return signals.kv_utilization
