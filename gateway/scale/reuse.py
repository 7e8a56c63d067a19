"""How large a cache would have to be: distances between askings of the same boundary. Pure.

A cache that forgets what was asked for longest ago still has a boundary that is asked for again if
it holds all that was asked for meanwhile: so many distinct boundaries are its *reuse distance*. The
distances of a sample (names that are small numbers, so that all gateways sample the same) tell how
much of what is asked for a cache of any size would have lost. What is asked for only once has no
distance: no cache helps it, and it does not count.
"""

import math
from bisect import bisect_left
from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from typing import Final

from radixgate.prefix import PrefixHash

SLICES: Final = 20
"""In which time is forgotten."""

STEP: Final = math.log(1.05)
"""Distances are kept to within 5 %."""

REMEMBERED: Final = 65_536
"""Boundaries of the sample whose last asking is known, at most."""


class Reuse:
    """Args: `memory`, in seconds: older askings count no longer."""

    def __init__(self, memory: float) -> None:
        self._memory = memory
        self._level = 0
        self._level_until = -math.inf
        self._count = 0
        # By boundary, in the order of the last askings: which one that was, and when.
        # NOTE: a dict takes longer to find its first key the more were taken from before it.
        self._last: OrderedDict[PrefixHash, tuple[int, float]] = OrderedDict()
        # The numbers of these, in the same order.
        self._order: list[int] = []
        # Of each time slice, tokens by the step of their distance, which is in tokens.
        self._slices: deque[tuple[float, Counter[int]]] = deque()

    def asked(self, names: Sequence[PrefixHash], level: int, stride: int, now: float) -> None:
        """Boundaries were asked for in this order.

        Args:
            names: those of them that are below 2^(64 - `level`).
            level: of the sample.
            stride: tokens of a boundary.
            now: in seconds; it does not go back by much.
        """
        self._follow(level, now)
        self._forget(now)
        below, weight = 1 << (64 - self._level), stride << self._level
        distances = self._slice(now)
        for name in names:
            if name >= below:
                continue
            self._count += 1
            if known := self._last.pop(name, None):
                at = bisect_left(self._order, known[0])
                distances[_step((len(self._order) - at) * weight)] += weight
                del self._order[at]
            self._last[name] = (self._count, now)
            self._order.append(self._count)

    def working_set(self, tolerated: float, now: float) -> float:
        """The smallest cache, in tokens, that would have lost no more than `tolerated` tokens."""
        self._forget(now)
        distances: Counter[int] = Counter()
        for _, each in self._slices:
            distances.update(each)
        for step in sorted(distances, reverse=True):
            tolerated -= distances[step]
            if tolerated < 0:
                return math.exp(step * STEP)
        return 0.0

    def _slice(self, now: float) -> Counter[int]:
        if not self._slices or now - self._slices[-1][0] >= self._memory / SLICES:
            self._slices.append((now, Counter()))
        return self._slices[-1][1]

    def _forget(self, now: float) -> None:
        oldest = now - self._memory
        while self._slices and self._slices[0][0] < oldest:
            self._slices.popleft()
        gone = 0
        while self._last:
            _, at = next(iter(self._last.values()))
            if at >= oldest and len(self._last) <= REMEMBERED:
                break
            self._last.popitem(last=False)
            gone += 1
        del self._order[:gone]

    def _follow(self, level: int, now: float) -> None:
        """Sample as sparsely as the sparsest of the gateways did lately."""
        if level > self._level:
            below = 1 << (64 - level)
            self._last = OrderedDict(
                (name, last) for name, last in self._last.items() if name < below
            )
            self._order = [number for number, _ in self._last.values()]
        if level >= self._level or now > self._level_until:
            self._level, self._level_until = level, now + self._memory


def _step(tokens: int) -> int:
    """Rounded up."""
    return math.ceil(math.log(tokens) / STEP)
