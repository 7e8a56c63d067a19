"""How a Deployment goes from old ReplicaSets to a new one. Pure: numbers in, numbers out.

Faithful to the deployment controller's RollingUpdate: never more than wanted + maxSurge pods, never
fewer available by its own doing than wanted - maxUnavailable, unhealthy old pods first.
Not here: the proportional scaling of a Deployment that is scaled in the midst of a rollout.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Replicas(NamedTuple):
    """A ReplicaSet: what it shall have, and how many of those are available."""

    wanted: int
    available: int


class Strategy(NamedTuple):
    """Pods beyond the wanted ones, and pods that may be missing of them."""

    surge: int
    unavailable: int

    @classmethod
    def of(cls, wanted: int, surge: int | str, unavailable: int | str) -> "Strategy":
        """Of numbers or percentages, of which the surge is rounded up, the other down."""
        up, down = _part(wanted, surge, math.ceil), _part(wanted, unavailable, math.floor)
        return cls(up, down) if up or down else cls(0, 1)


def _part(wanted: int, value: int | str, rounded: Callable[[float], int]) -> int:
    if isinstance(value, int):
        return value
    return rounded(wanted * int(value.removesuffix("%")) / 100)


def step(wanted: int, strategy: Strategy, new: Replicas, old: Sequence[Replicas]) -> list[int]:
    """What the old ReplicaSets, oldest first, and as the last the new one shall have next."""
    kept = [replicas.wanted for replicas in old]
    total = new.wanted + sum(kept)
    if new.wanted > wanted:
        return [*kept, wanted]
    room = wanted + strategy.surge - total
    if new.wanted < wanted and room > 0:
        return [*kept, new.wanted + min(room, wanted - new.wanted)]
    least = wanted - strategy.unavailable
    removable = total - least - (new.wanted - new.available)
    for index, replicas in enumerate(old):
        unhealthy = max(0, min(removable, replicas.wanted - replicas.available))
        kept[index] -= unhealthy
        removable -= unhealthy
    spare = new.available + sum(replicas.available for replicas in old) - least
    for index, count in enumerate(kept):
        fewer = max(0, min(spare, count))
        kept[index] -= fewer
        spare -= fewer
    return [*kept, new.wanted]
