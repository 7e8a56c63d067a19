"""Short ways to make tickets."""

import math

from gateway.route.ticket import Ticket


def ticket(
    tenant: str = "a",
    tokens: int = 10,
    *,
    held: bool = False,
    priority: int = 0,
    arrived: float = 0.0,
    latest: float = math.inf,
    deadline: float = math.inf,
) -> Ticket:
    return Ticket(tenant, priority, tokens, held, arrived, latest, deadline)
