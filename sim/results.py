"""What a simulation has measured, request by request and over time: values, no statistics."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Requests:
    """Arrays [N], one place for each request of the trace, by number. Times are virtual seconds.

    Attributes:
        arrived: at the gateway.
        sent: to the worker; NaN when it was refused.
        started: when the worker took it up.
        first_token, ended: when the client had them, but for the way of the answer.
        worker: index of the worker; -1 when it was refused.
        prompt_tokens: asked.
        cached, stale, elsewhere, evicted, new: prompt tokens by their fate, as the gateway names
            them (`gateway.route.outcome.Fate`), but by what is true: elsewhere is what another
            worker really held, and evicted what any had held before; they sum to `prompt_tokens`.
        output_tokens: generated.
        preemptions: how often it lost its blocks.
    """

    arrived: Floats
    sent: Floats
    started: Floats
    first_token: Floats
    ended: Floats
    worker: Ints
    prompt_tokens: Ints
    cached: Ints
    stale: Ints
    elsewhere: Ints
    evicted: Ints
    new: Ints
    output_tokens: Ints
    preemptions: Ints


@dataclass(frozen=True, slots=True)
class Workers:
    """Arrays [W], one place for each worker.

    Attributes: `busy_seconds` in which it computed; `steps`; `evicted_blocks`; `requests`.
    """

    busy_seconds: Floats
    steps: Ints
    evicted_blocks: Ints
    requests: Ints


@dataclass(frozen=True, slots=True)
class Samples:
    """The pool at points in time, [T] or [T, W].

    Attributes: `at` [T] seconds; `running` and `waiting` [T, W] sequences; `used_blocks` [T, W],
    those that are not free; `queued` [T], requests that wait in the gateway.
    """

    at: Floats
    running: Ints
    waiting: Ints
    used_blocks: Ints
    queued: Ints


@dataclass(frozen=True, slots=True)
class Run:
    """One policy over one trace.

    Attributes:
        policy: its name.
        trace: name of the trace.
        settings: what else distinguishes the run, for people: option to value.
        gpus: of all workers.
        requests, workers, samples: see there.
        gaps: seconds between two tokens of one answer, rising; `gap_counts` of each, [G].
        ideal_cached: [N] tokens of each prompt that one endless cache would have had.
        wall_seconds: that the simulation took.
        refusals: why requests were refused, and how many.
    """

    policy: str
    trace: str
    settings: dict[str, str]
    gpus: int
    requests: Requests
    workers: Workers
    samples: Samples
    gaps: Floats
    gap_counts: Ints
    ideal_cached: Ints
    wall_seconds: float
    refusals: dict[str, int] = field(default_factory=dict)


Runs = Sequence[Run]
