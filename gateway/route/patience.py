"""How long to wait for a worker's first message before it is late: the measured 99th percentile.

Workers differ, and so do prompts, but the cost of a request says beforehand about how long it will
take. So a request is compared with those whose cost was within the same power of two. Pure.
"""

import math
from collections import defaultdict, deque
from typing import Final

REMEMBERED: Final = 500
# With fewer, the 99th percentile would be the longest or beyond it.
ENOUGH: Final = 100


class Patience:
    """Of one pool, from its last requests of each cost."""

    def __init__(self) -> None:
        self._seconds: defaultdict[int, deque[float]] = defaultdict(
            lambda: deque(maxlen=REMEMBERED)
        )

    def waited(self, cost_ms: float, seconds: float) -> None:
        """The first message of a request came after so long, or was no longer waited for then."""
        self._seconds[_magnitude(cost_ms)].append(seconds)

    def limit(self, cost_ms: float) -> float | None:
        """Seconds in which 99 of 100 requests of that cost had an answer; None until known."""
        seconds = self._seconds.get(_magnitude(cost_ms), ())
        if len(seconds) < ENOUGH:
            return None
        return sorted(seconds)[math.ceil(0.99 * len(seconds)) - 1]


def _magnitude(cost_ms: float) -> int:
    """What costs have in common of which none is twice another."""
    return math.frexp(max(1.0, cost_ms))[1]
