"""The requests that a policy has: it sends or refuses each once, and keeps none for ever."""

from typing import Final

PATIENCE_SECONDS: Final = 600.0
"""For so long at most a policy keeps requests while nothing else happens."""


class AtGateway:
    """Its length is how many there are. All times are virtual seconds."""

    def __init__(self) -> None:
        self._numbers: set[int] = set()
        self._last_news = 0.0

    def __len__(self) -> int:
        return len(self._numbers)

    def came(self, number: int, now: float) -> None:
        """A request; the policy has it now."""
        self._numbers.add(number)
        self._last_news = now

    def left(self, number: int, now: float) -> None:
        """It was sent or refused.

        Raises:
            RuntimeError: it is not there.
        """
        if number not in self._numbers:
            raise RuntimeError(
                f"the policy sends or refuses a request twice: request {number} is not at the "
                f"gateway"
            )
        self._numbers.remove(number)
        self._last_news = now

    def over(self, now: float) -> None:
        """A request was answered or refused, which may move the policy to send another."""
        self._last_news = now

    def check(self, now: float) -> None:
        """While all workers are idle.

        Raises:
            RuntimeError: the policy keeps requests that nothing is going to move.
        """
        if self._numbers and now > self._last_news + PATIENCE_SECONDS:
            kept = len(self._numbers)
            raise RuntimeError(
                f"at {now:.0f} s the policy keeps {kept} request{'s' if kept > 1 else ''} "
                f"while all workers are idle, and has for {PATIENCE_SECONDS:.0f} s"
            )
