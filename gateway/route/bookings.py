"""Outcomes from the first tokens of requests to what can be said of them for good. Pure.

What is missing of a promise may still be explained for `GRACE` seconds by reports that are on their
way. An outcome is settled then, or at once if nothing is missing; doubt does not wait for that.
"""

from collections import deque
from collections.abc import Callable, Collection

from gateway.fleet.trust import Belief
from gateway.fleet.worker import Life
from gateway.route.outcome import Outcome, Promise
from gateway.route.record import GRACE, Ask, Records


class Bookings:
    """Seconds are of any one clock that does not go back.

    Args:
        records: of the workers.
        doubt: told what is to be believed of a life by its record, whenever that may have changed.
        settled: told of each outcome, once nothing that comes can change it.
    """

    def __init__(
        self,
        records: Records,
        *,
        doubt: Callable[[Life, Belief | None], None],
        settled: Callable[[Outcome], None],
    ) -> None:
        self._records = records
        self._doubt = doubt
        self._settled = settled
        # What may still be explained, and when it is settled.
        self._open: deque[tuple[float, Outcome]] = deque()

    @property
    def pending(self) -> bool:
        """Whether time alone may change anything, by `step`."""
        return bool(self._open) or self._records.doubting

    def book(self, promise: Promise, cached_tokens: int, now: float) -> None:
        """The chosen worker began, or has served, a request: so much of its prompt was cached.

        Once for each request, and before its reservation is released.
        """
        promise.booked = True
        outcome = Outcome(promise, min(cached_tokens, promise.prompt_tokens))
        if promise.counts:
            self._records.book(outcome, now)
            self._tell(promise.life)
        if outcome.missing:
            self._open.append((now + GRACE, outcome))
        else:
            self._settled(outcome)

    def replaced(self, life: Life, now: float) -> None:
        """A snapshot has taken the place of its summary."""
        self._records.replaced(life, now)
        self._tell(life)

    def step(self, lives: Collection[Life], now: float) -> list[Ask]:
        """Settle what is due, and let doubts end; who is to be asked for a snapshot now.

        `lives`: all that there are; others are forgotten.
        """
        while self._open and self._open[0][0] <= now:
            self._settled(self._open.popleft()[1])
        self._records.keep(lives)
        asks = self._records.due(now)
        for life in lives:
            self._tell(life)
        return asks

    def _tell(self, life: Life) -> None:
        self._doubt(life, self._records.doubt(life))
