"""What discovery has found, how fresh that is, and what keeps it from finding more."""

from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum

from gateway.fleet.discovery.endpoints import Endpoint


class Relist(Enum):
    """Why the pods are listed again."""

    STARTED = "start"
    PERIOD = "period"
    CLOSED = "closed"
    EXPIRED = "expired"
    LATE = "late"
    SILENT = "silent"
    REFUSED = "refused"
    FAILED = "failed"


class Discovered:
    """Args: the `selector` that pods are found by; `clock`, monotonic seconds.

    Attributes:
        endpoints: the pods that there are, by UID.
        problem: why they cannot be followed now; empty while they can.
        relists: how often the pods were listed, or that was tried, by why.
    """

    def __init__(self, selector: str, clock: Callable[[], float]) -> None:
        self.selector = selector
        self.endpoints: Mapping[str, Endpoint] = {}
        self.problem = ""
        self.relists: Counter[Relist] = Counter(dict.fromkeys(Relist, 0))
        self._clock = clock
        self._confirmed_at = clock()

    def confirm(self) -> None:
        """The API server has just said all that there is."""
        self._confirmed_at = self._clock()

    def age(self) -> float:
        """Seconds since it was confirmed last, or since the start."""
        return self._clock() - self._confirmed_at
