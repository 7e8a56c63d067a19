"""Small traces and workers for tests of the simulator, and strategies that make them."""

from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from radixgate.namespace import NamespaceSeed

from gateway.route.router import Prompt
from sim.hardware.setup import WorkerSetup
from sim.hardware.step_time import StepTime
from sim.ideal import ideal_cached
from sim.policy.base import Job, Policy, Site
from sim.policy.catalogue import policy
from sim.request import Content, Request, Trace
from sim.results import Run
from sim.run import simulate
from sim.setting import Setting
from sim.worker.visit import Visit

BLOCK = 4
STRIDE = 8

STEP_TIME = StepTime(
    step=2**-7, prompt_token=2**-12, pair=2**-18, generation=2**-11, context_token=2**-16
)
"""In powers of two, so that sums of few of them are exact."""


def setup(num_blocks: int = 64, **others: Any) -> WorkerSetup:
    """A small worker."""
    values = {"step_time": STEP_TIME, "max_running": 8, "token_budget": 64, "block_size": BLOCK}
    return WorkerSetup("small", num_blocks, **{**values, **others})


def content(ids: Sequence[int], tokens: int | None = None, block_tokens: int = BLOCK) -> Content:
    """Of whole ids, or of so many tokens."""
    count = len(ids) * block_tokens if tokens is None else tokens
    return Content(array("I", ids), block_tokens, count)


def trace(*requests: Request) -> Trace:
    return Trace("small", requests)


def asked(number: int, at: float, ids: Sequence[int], **others: Any) -> Request:
    """A request of one token of output, unless told otherwise."""
    return Request(number, at, content(ids), **{"output_tokens": 1, **others})


def visit_of(tokens: int, final: int) -> Visit:
    """That has so many `tokens`, and `final` at its end."""
    ids = array("I", [1] * tokens)
    job = Job(0, Prompt(ids.tobytes(), 1, NamespaceSeed(0)), "", "", 0, 0.0)
    return Visit(job, Request(0, 0.0, Content(ids, 1, tokens), final - tokens), 0, 0)


def played(
    small: Trace,
    setting: Setting,
    make: str | Callable[[Site], Policy] = "round_robin",
    progress: Callable[[], None] = lambda: None,
) -> Run:
    """A run of a policy, by its name or by what makes it."""
    return simulate(
        small,
        setting,
        policy(make) if isinstance(make, str) else make,
        name=str(make),
        ideal=ideal_cached(small, setting.setup.block_size),
        progress=progress,
    )


def same(one: Run, other: Run) -> bool:
    """Whether two runs measured the same, to the last digit."""
    parts = [
        (one.requests, other.requests),
        (one.workers, other.workers),
        (one.samples, other.samples),
    ]
    arrays = [
        (getattr(left, name), getattr(right, name))
        for left, right in parts
        for name in left.__slots__
    ]
    arrays += [
        (one.gaps, other.gaps),
        (one.gap_counts, other.gap_counts),
        (one.ideal_cached, other.ideal_cached),
    ]
    equal = all(
        left.shape == right.shape and left.tobytes() == right.tobytes() for left, right in arrays
    )
    return equal and (one.policy, one.trace, one.settings, one.gpus, one.refusals) == (
        other.policy,
        other.trace,
        other.settings,
        other.gpus,
        other.refusals,
    )


@st.composite
def traces(draw: st.DrawFn, most: int = 12, *, apart: float = 0.0, tenants: bool = True) -> Trace:
    """Requests that come at once or one after the other, and often begin alike.

    The times are such that nobody comes at the very end of a step, where rounding decides whether
    that is over.

    Args: `most` of them; seconds that each comes after the one before, at least.
    """
    at, requests = 0.0, []
    for number in range(draw(st.integers(1, most))):
        at += apart + draw(st.sampled_from([0.0, 0.001, 0.0503, 1.0007]))
        ids = draw(st.lists(st.integers(0, 1), min_size=1, max_size=6))
        short = draw(st.integers(0, BLOCK - 1))
        output_tokens = draw(st.integers(1, 14))
        known = not short and draw(st.booleans())
        output_ids = [0] * -(-output_tokens // BLOCK)
        after = draw(st.none() | st.integers(0, number - 1)) if number else None
        requests.append(
            Request(
                number,
                at,
                content(ids, len(ids) * BLOCK - short),
                output_tokens,
                output=content(output_ids, output_tokens) if known else None,
                session=draw(st.sampled_from(["", "a", "b"])),
                after=after,
                think=draw(st.sampled_from([0.0, 0.5])) + number / 7001
                if after is not None
                else 0.0,
                tenant=draw(st.sampled_from(["", "t"])) if tenants else "",
                priority=draw(st.integers(0, 1)),
            )
        )
    return Trace("small", requests)


def known_tokens(request: Request) -> tuple[int, ...]:
    """Of the prompt and of the output, if that is known."""
    parts = [request.prompt] + ([request.output] if request.output is not None else [])
    return tuple(int(token) for part in parts for token in np.frombuffer(part.packed(), "<u4"))
