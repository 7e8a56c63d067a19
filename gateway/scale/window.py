"""What all gateways of a pool counted in the last minutes. Pure: the time is passed in.

Whoever has taken the same entries says the same.
"""

import math
from collections import deque
from collections.abc import Collection
from itertools import takewhile
from typing import Final, NamedTuple

from radixgate.prefix import unpack_hashes
from radixgate.v1.demand_pb2 import Demand

from gateway.scale.reuse import Reuse
from gateway.scale.served import Served

FRESH: Final = 6.0
"""Seconds after which who has made no new entry is taken for gone, and what waited there too."""


class Spans(NamedTuple):
    """Seconds. Args: `memory`, for which entries are kept, and askings of boundaries."""

    memory: float

    @property
    def traffic(self) -> float:
        """Over which tokens are counted; without a request in them there is no traffic."""
        return self.memory / 5

    @property
    def recent(self) -> float:
        """Over which waits and the use of workers are averaged."""
        return self.memory / 20

    @property
    def settled(self) -> float:
        """For which nothing must have been missing of what is counted before a pool shrinks."""
        return self.memory / 2

    @property
    def half_life(self) -> float:
        """In which what a worker's cache has served loses half of its value."""
        return self.memory / 2


class Entry(NamedTuple):
    """Args: when it was made, in seconds; what one gateway counted."""

    at: float
    demand: Demand


class Window:
    """The demand on one pool. Args: `spans` of time that count.

    Attributes: `reuse` of the boundaries that were asked for; `prompt_tokens` in all entries kept.
    """

    def __init__(self, spans: Spans) -> None:
        self.spans = spans
        self.reuse = Reuse(spans.memory)
        self.prompt_tokens = 0
        self._entries: deque[Entry] = deque()
        self._complete_since = math.inf
        self._gap = max(FRESH, spans.recent)
        self._served = Served(spans.half_life)

    def add(self, entry: Entry, *, complete: bool = True) -> None:
        """Take the next entry, in the order of time.

        `complete`: nothing is missing that other gateways have counted before; it is, too, after a
        time in which nobody counted. When the clock has been set back the ages of the entries
        before are not known, so they are forgotten.
        """
        at, demand = entry
        if self._entries and at < self._entries[-1].at - self._gap:
            self._forget()
        if not complete:
            self._complete_since = math.inf
        elif math.isinf(self._complete_since) or at - self._entries[-1].at > self._gap:
            self._complete_since = at
        if demand.stride:
            self.reuse.asked(unpack_hashes(demand.sample), demand.level, demand.stride, at)
            demand.ClearField("sample")
        self._entries.append(entry)
        self.prompt_tokens += demand.prompt_tokens
        self._served.add(at, demand.served_tokens)
        while self._entries[0].at < at - self.spans.memory:
            old = self._entries.popleft()
            self.prompt_tokens -= old.demand.prompt_tokens
            self._served.remove(old.at, old.demand.served_tokens)

    def complete_seconds(self, now: float) -> float:
        """For how long nothing has been missing."""
        return max(0.0, now - self._complete_since)

    def counted_seconds(self, now: float) -> float:
        """For how long there have been entries, whether any are missing or not."""
        return max(0.0, now - self._entries[0].at) if self._entries else 0.0

    def last(self, seconds: float, now: float) -> list[Demand]:
        """What was counted in the last `seconds`, newest first."""
        since = now - seconds
        entries = takewhile(lambda entry: entry.at >= since, reversed(self._entries))
        return [entry.demand for entry in entries]

    def present(self, now: float) -> Collection[Demand]:
        """The newest of each gateway that is there."""
        newest: dict[str, Demand] = {}
        for demand in self.last(FRESH, now):
            newest.setdefault(demand.gateway, demand)
        return newest.values()

    def values(self, now: float) -> dict[str, float]:
        """Prompt tokens a second that each worker had cached, on an average that forgets."""
        return self._served.values(now)

    def _forget(self) -> None:
        self.reuse = Reuse(self.spans.memory)
        self.prompt_tokens = 0
        self._served = Served(self.spans.half_life)
        self._entries.clear()
        self._complete_since = math.inf
