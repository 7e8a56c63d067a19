"""What generators have in common: their settings, how long things are, and when requests come."""

import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from random import Random
from typing import Final

from sim.request import Content, Trace
from sim.trace.draft import Draft, trace_of
from sim.trace.row import MAX_TOKENS, TraceError

BLOCK_TOKENS: Final = 16
"""Everything is as long as a number of such blocks, one at least."""

SPREAD: Final = 0.6
"""Of the logarithm of lengths: two of three are within a factor of 1.8 of their median."""


class Writer:
    """Makes up text. Args: `rng`, the source of chance."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._last = 0

    def text(self, tokens: int) -> "array[int]":
        """About `tokens` tokens that nothing else has: so many on average."""
        mean = math.log(tokens / BLOCK_TOKENS) - SPREAD**2 / 2
        return self.exactly(BLOCK_TOKENS * max(1, round(self._rng.lognormvariate(mean, SPREAD))))

    def exactly(self, tokens: int) -> "array[int]":
        """As many, up to a whole block."""
        begin = self._last
        self._last += -(-tokens // BLOCK_TOKENS)
        return array("I", range(begin, self._last))


def content(text: "array[int]") -> Content:
    """What `text` is to a trace."""
    return Content(text, BLOCK_TOKENS, len(text) * BLOCK_TOKENS)


def draft(at: float, prompt: "array[int]", output: "array[int]", session: str = "") -> Draft:
    """A request whose answer is known."""
    known = content(output)
    return Draft(at, content(prompt), known.tokens, known, session)


def popular(count: int, zipf: float) -> Sequence[float]:
    """Weights, summed up, of `count` things, the n-th of which is asked for in proportion to
    1 / n^zipf.
    """
    total, summed = 0.0, []
    for place in range(1, count + 1):
        total += place**-zipf
        summed.append(total)
    return summed


@dataclass(frozen=True, kw_only=True)
class Generator(ABC):
    """Settings of a generator. Lengths are tokens on average, times seconds on average.

    Args:
        requests: in all.
        rate: of requests, in each second.
        seed: of chance; equal ones make equal traces.

    Raises:
        TraceError: a setting is out of its range.
    """

    requests: int = 2000
    rate: float = 5.0
    seed: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "seed":
                wanted, good = "0 or more", value >= 0
            elif isinstance(value, int):
                wanted, good = f"1 to {MAX_TOKENS:,}", 1 <= value <= MAX_TOKENS
            elif field.name == "rate":
                wanted, good = "more than 0", 0 < value < math.inf
            else:
                wanted, good = "0 or more", 0 <= value < math.inf
            if not good:
                raise TraceError(f"{field.name} must be {wanted}, and is {value}")

    def trace(self, name: str) -> Trace:
        """A trace of `requests` requests."""
        rng = Random(self.seed)
        drafts = islice(self.drafts(rng, Writer(rng)), self.requests)
        return trace_of(name, list(drafts))

    @abstractmethod
    def drafts(self, rng: Random, writer: Writer) -> Iterator[Draft]:
        """Requests without end, each after the one that it follows on."""

    def arrivals(self, rng: Random, requests_each: float = 1.0) -> Iterator[float]:
        """When clients come, at random, each of whom sends so many requests on average."""
        at = 0.0
        while True:
            yield at
            at += rng.expovariate(self.rate / requests_each)
