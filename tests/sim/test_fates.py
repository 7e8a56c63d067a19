"""Why a prompt token was not cached: what is true, and not what a policy believes."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from sim.policy.base import Choice, Job, Policy, Site
from sim.request import Request
from sim.setting import Setting
from sim.truth import Fates, ObservedEvents, Truth
from tests.sim.small import STRIDE, asked, content, played, setup, trace
from worker.kv.events import Reason

ALL = 24
"""Tokens of the prompt that most of these ask about: three boundaries."""

PROMPT = [1, 2, 3, 4, 5, 6]


class Told(Policy):
    """Sends each request where it is told to.

    Args: for each, the index of the worker, and the tokens that are expected there.
    """

    def __init__(self, site: Site, choices: Sequence[tuple[int, int]]) -> None:
        super().__init__(site)
        self._choices = choices

    def choose(self, job: Job) -> Choice:
        worker, expected = self._choices[job.number]
        return Choice(self.site.places[worker].id, expected)


def fates_of_last(
    requests: Sequence[Request], choices: Sequence[tuple[int, int]], num_blocks: int = 64
) -> Fates:
    run = played(
        trace(*requests),
        Setting(setup(num_blocks), 2, STRIDE),
        lambda site: Told(site, choices),
    )
    each = run.requests
    return Fates(*(int(getattr(each, name)[-1]) for name in Fates._fields))


def test_what_nobody_ever_had_is_new() -> None:
    assert fates_of_last([asked(0, 0.0, PROMPT)], [(0, 0)]) == Fates(0, 0, 0, 0, ALL)


def test_what_the_worker_holds_is_cached() -> None:
    twice = [asked(0, 0.0, PROMPT), asked(1, 1.0, PROMPT)]
    assert fates_of_last(twice, [(0, 0), (0, ALL)]) == Fates(ALL, 0, 0, 0, 0)


def test_what_the_policy_believed_in_is_stale() -> None:
    twice = [asked(0, 0.0, PROMPT[:2]), asked(1, 1.0, PROMPT)]
    assert fates_of_last(twice, [(0, 0), (0, 16)]) == Fates(8, 8, 0, 0, 8)
    assert fates_of_last(twice, [(0, 0), (0, 1000)]) == Fates(8, 16, 0, 0, 0)


def test_what_another_worker_holds_is_elsewhere() -> None:
    twice = [asked(0, 0.0, PROMPT[:4]), asked(1, 1.0, PROMPT)]
    assert fates_of_last(twice, [(1, 0), (0, 0)]) == Fates(0, 0, 16, 0, 8)


def test_what_had_to_go_is_evicted() -> None:
    requests = [asked(0, 0.0, PROMPT), asked(1, 1.0, [9] * 7), asked(2, 2.0, PROMPT)]
    assert fates_of_last(requests, [(0, 0)] * 3, num_blocks=8) == Fates(0, 0, 0, ALL, 0)
    # Whoever had it: here the other worker.
    moved = [(1, 0), (1, 0), (0, 0)]
    assert fates_of_last(requests, moved, num_blocks=8) == Fates(0, 0, 0, ALL, 0)


def test_each_token_has_the_first_fate_that_is_true_of_it() -> None:
    requests = [
        asked(0, 0.0, [1]),
        asked(1, 1.0, PROMPT[:4]),
        asked(2, 2.0, [*PROMPT, 7, 8]),
        asked(3, 3.0, [9] * 5),
        Request(4, 4.0, content([*PROMPT, 7, 8, 9], 35), 1),
    ]
    choices = [(0, 0), (1, 0), (1, 0), (1, 0), (0, 6)]
    # One block is cached and two more tokens are expected. Of eight blocks that the other worker
    # had, those of two boundaries are left, and of the rest nobody has any.
    assert fates_of_last(requests, choices, num_blocks=10) == Fates(4, 2, 10, 16, 3)


def test_what_lies_behind_the_last_boundary_is_new() -> None:
    requests = [asked(0, 0.0, PROMPT[:3]), asked(1, 1.0, PROMPT[:3])]
    assert fates_of_last(requests, [(0, 0), (1, 0)]) == Fates(0, 0, 8, 0, 4)


COUNTS = st.integers(0, 6)


@given(st.lists(st.tuples(COUNTS, COUNTS), min_size=2, max_size=3), COUNTS, COUNTS, COUNTS, COUNTS)
def test_fates_are_those_of_each_token(
    stored: list[tuple[int, int]], cached: int, expected: int, known: int, behind: int
) -> None:
    """Args: of each worker, how many boundaries it has stored and then evicted; blocks of half a
    stride that are cached and tokens expected; boundaries of the prompt, and tokens behind them.
    """
    truth, boundaries = Truth(), [100 + at for at in range(6)]
    held = []
    for worker, (had, gone) in enumerate(stored):
        events = ObservedEvents(f"w{worker}", truth)
        events.stored(boundaries[:had])
        events.removed(boundaries[max(0, had - gone) : had], Reason.CAPACITY)
        held.append(max(0, had - gone))
    tokens = max(1, known * STRIDE + behind)
    found = min(cached * STRIDE // 2, tokens)
    fates = truth.fates(
        "w0",
        boundaries[:known],
        STRIDE,
        prompt_tokens=tokens,
        cached=found,
        expected=expected * 5,
    )

    def fate(token: int) -> str:
        if token < found:
            return "cached"
        if token < expected * 5:
            return "stale"
        boundary = token // STRIDE
        if boundary < known and boundary < max(held[1:]):
            return "elsewhere"
        ever = max(had for had, _ in stored)
        return "evicted" if boundary < min(known, ever) else "new"

    names = [fate(token) for token in range(tokens)]
    assert fates == Fates(*(names.count(name) for name in Fates._fields))
