"""A request that asks for its turn: a value, equal only to itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """Times are seconds of any one clock that does not go back.

    Args:
        tenant: who shares what it takes; "" is a tenant like any other.
        priority: higher goes first; 0 is normal.
        tokens: of its prompt that have to be computed, at least 1.
        arrived: when it came.
        latest: when its turn must have come, at the latest.
        deadline: when it must be finished; infinite if the client sets none.
    """

    tenant: str
    priority: int
    tokens: int
    arrived: float
    latest: float
    deadline: float
