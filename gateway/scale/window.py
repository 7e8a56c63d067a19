"""What all gateways of a pool counted in the last minutes. Pure: the time is passed in.

Whoever has taken the same entries says the same.
"""

import math
from collections import defaultdict, deque
from collections.abc import Collection
from itertools import takewhile
from typing import Final, NamedTuple

from radixgate.prefix import unpack_hashes
from radixgate.v1.demand_pb2 import Demand

from gateway.scale.reuse import Reuse

MEMORY: Final = 600.0
"""Seconds that entries are kept, and askings of boundaries."""

TRAFFIC: Final = 120.0
"""Seconds over which tokens are counted; without a request in them there is no traffic."""

RECENT: Final = 30.0
"""Seconds over which waits and the use of workers are averaged."""

FRESH: Final = 6.0
"""Seconds after which who has made no new entry is taken for gone, and what waited there too."""

HALF_LIFE: Final = 300.0
"""Seconds in which what a worker's cache has served loses half of its value."""


class Entry(NamedTuple):
    """Args: when it was made, in seconds; what one gateway counted."""

    at: float
    demand: Demand


class Window:
    """The demand on one pool. Attributes: `reuse` of the boundaries that were asked for."""

    def __init__(self) -> None:
        self.reuse = Reuse(MEMORY)
        self._entries: deque[Entry] = deque()
        self._complete_since = math.inf

    def add(self, entry: Entry, *, complete: bool = True) -> None:
        """Take the next entry, in the order of time.

        `complete`: nothing is missing that other gateways have counted before; it is, too, after a
        time in which nobody counted.
        """
        at, demand = entry
        if not complete:
            self._complete_since = math.inf
        elif math.isinf(self._complete_since) or at - self._entries[-1].at > RECENT:
            self._complete_since = at
        if demand.stride:
            self.reuse.asked(unpack_hashes(demand.sample), demand.level, demand.stride, at)
            demand.ClearField("sample")
        self._entries.append(entry)
        while self._entries[0].at < at - MEMORY:
            self._entries.popleft()

    def complete_seconds(self, now: float) -> float:
        """For how long nothing has been missing."""
        return max(0.0, now - self._complete_since)

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
        values: defaultdict[str, float] = defaultdict(float)
        for at, demand in self._entries:
            weight = math.log(2) / HALF_LIFE * 0.5 ** (max(0.0, now - at) / HALF_LIFE)
            for worker, tokens in demand.served_tokens.items():
                values[worker] += weight * tokens
        return dict(values)
