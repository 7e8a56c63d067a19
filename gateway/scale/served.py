"""What the workers have served lately, on an average that forgets. Pure.

All that is kept loses its value at the same rate, so a sum stays a sum as time passes: it is kept
as it would be worth at one fixed time.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

MOST_HALF_LIVES: Final = 100.0
"""After so many the sums are moved to a later time, before they become too large."""


class Served:
    """Args: `half_life` in seconds, in which what was served loses half of its value."""

    def __init__(self, half_life: float) -> None:
        self._half_life = half_life
        self._origin = self._last = 0.0
        # By worker: tokens, as they are worth at the origin; and in how many entries.
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._entries: Counter[str] = Counter()

    def add(self, at: float, tokens: Mapping[str, int]) -> None:
        """Workers served so many tokens, at `at` in seconds."""
        if not self._sums or (at - self._origin) > MOST_HALF_LIVES * self._half_life:
            self._move(at)
        self._last = at
        worth = self._worth(at)
        for worker, count in tokens.items():
            self._sums[worker] += worth * count
            self._entries[worker] += 1

    def remove(self, at: float, tokens: Mapping[str, int]) -> None:
        """What was added so counts no longer."""
        worth = self._worth(at)
        for worker, count in tokens.items():
            self._sums[worker] -= worth * count
            self._entries[worker] -= 1
            if not self._entries[worker]:
                del self._sums[worker], self._entries[worker]

    def values(self, now: float) -> dict[str, float]:
        """Tokens a second, by worker, at `now`; it is never before what was added last."""
        faded = 0.5 ** (max(0.0, now - self._last) / self._half_life)
        scale = math.log(2) / self._half_life * faded / self._worth(self._last)
        return {worker: scale * max(0.0, total) for worker, total in self._sums.items()}

    def _worth(self, at: float) -> float:
        return float(2.0 ** ((at - self._origin) / self._half_life))

    def _move(self, origin: float) -> None:
        scale = 0.5 ** ((origin - self._origin) / self._half_life) if self._sums else 1.0
        for worker in self._sums:
            self._sums[worker] *= scale
        self._origin = origin
