"""What it would cost to delete each pod, for Kubernetes' `pod-deletion-cost`. Pure.

A ReplicaSet that is scaled down deletes ready pods by rising cost. A pod's cost is the logarithm of
the prompt tokens a second that its cache saves from being computed, in half octaves: so it does not
depend on the other pods, and changes seldom. It follows its value only when that has moved by four
fifths of a step, so a value at the edge of two steps does not go to and fro.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

ANNOTATION: Final = "controller.kubernetes.io/pod-deletion-cost"

DRAINING: Final = -1
"""Of a pod whose workers finish what they have and take nothing new. A pod without the annotation
costs 0, as one does that saves nothing: there is nothing yet to lose with either."""

STEPS_PER_OCTAVE: Final = 2
MOVES_AT: Final = 0.8


class Holding(NamedTuple):
    """A worker, or what is left of one.

    Args:
        uid: of its pod.
        value: prompt tokens a second served from its cache.
        draining: it takes nothing new.
    """

    uid: str
    value: float
    draining: bool


def costs(holdings: Iterable[Holding], before: Mapping[str, int]) -> dict[str, int]:
    """The cost of each pod, by UID; `before`, what it has now."""
    values: dict[str, float] = {}
    staying: set[str] = set()
    for holding in holdings:
        values[holding.uid] = values.get(holding.uid, 0.0) + holding.value
        if not holding.draining:
            staying.add(holding.uid)
    return {
        uid: cost(value, before.get(uid)) if uid in staying else DRAINING
        for uid, value in values.items()
    }


def cost(value: float, before: int | None) -> int:
    """The cost of a pod that serves `value` tokens a second from its cache; `before`, its last."""
    exact = STEPS_PER_OCTAVE * math.log2(1.0 + value)
    if before is not None and before >= 0 and abs(exact - before) < MOVES_AT:
        return before
    return round(exact)
