"""Virtual time: what is due happens in order; at equal times what was asked for first."""

import heapq
from collections.abc import Callable
from itertools import count


class EventLoop:
    """Attributes: `now`, virtual seconds; never goes back."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        """Call `callback` at `when`, or now if that is past."""
        due = when if when > self.now else self.now
        heapq.heappush(self._due, (due, next(self._numbers), callback))

    def run(self, until: Callable[[], bool]) -> None:
        """Let time pass until `until()`.

        Raises:
            RuntimeError: nothing is due any more, and it is not so: someone waits for ever.
        """
        while not until():
            if not self._due:
                raise RuntimeError(f"at {self.now:.3f} s nothing is due, and not all has ended")
            self.now, _, callback = heapq.heappop(self._due)
            callback()
