"""A request that asks for its turn: a value, equal only to itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """Times are seconds of any one clock that does not go back.

    Args:
        tenant: who shares what it takes; "" is a tenant like any other.
        priority: higher goes first; 0 is normal.
        tokens: of its prompt that have to be computed, at least 1.
        held: whether a worker that has a place for it is expected to hold most of its prompt.
        arrived: when it came.
        latest: when its turn must have come, at the latest.
        deadline: when it must be finished; infinite if the client sets none.
    """

    tenant: str
    priority: int
    tokens: int
    held: bool
    arrived: float
    latest: float
    deadline: float

    @property
    def passes(self) -> bool:
        """Whether it need not wait in the gateway for shorter backlogs.

        It adds little to them, and a worker protects what it holds of a prompt that waits there.
        """
        return self.held and self.priority == 0
