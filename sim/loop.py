"""Virtual time: what is due happens in order; at equal times what was asked for first."""

import heapq
from collections.abc import Callable
from itertools import count


class EventLoop:
    """Attributes: `now`, virtual seconds; never goes back."""

    def __init__(self) -> None:
        self.now = 0.0
        self._over = False
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        """Call `callback` at `when`, or now if that is past."""
        due = when if when > self.now else self.now
        heapq.heappush(self._due, (due, next(self._numbers), callback))

    def end(self) -> None:
        """Time ends with what happens now."""
        self._over = True

    def run(self) -> None:
        """Let time pass until `end` is called.

        Raises:
            RuntimeError: nothing is due any more, and it was not: someone waits for ever.
        """
        while not self._over:
            if not self._due:
                raise RuntimeError(f"at {self.now:.3f} s nothing is due, and not all has ended")
            self.now, _, callback = heapq.heappop(self._due)
            callback()
