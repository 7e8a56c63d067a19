"""What a HorizontalPodAutoscaler (autoscaling/v2) decides. Pure: readings and the time come in.

Faithful to the documented algorithm, and to the controller's code where that says more: tolerance,
External metrics as Value and AverageValue, the largest proposal of several metrics, a missing one
that forbids scaling down, stabilisation windows, Pods and Percent policies, bounds.
Not here: Resource, Pods and Object metrics (they count as missing), selectPolicy (it is Max),
tolerances of a behavior.
"""

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

TOLERANCE: Final = 0.1

Rules = dict[str, Any]
UP: Final[Rules] = {
    "stabilizationWindowSeconds": 0,
    "policies": [
        {"type": "Percent", "value": 100, "periodSeconds": 15},
        {"type": "Pods", "value": 4, "periodSeconds": 15},
    ],
}
DOWN: Final[Rules] = {
    "stabilizationWindowSeconds": 300,
    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
}


class Reading(NamedTuple):
    """An External metric: the sum over its series, and the target per replica or for all."""

    value: float
    target: float
    per_replica: bool


class Replicas(NamedTuple):
    """Of a scale target: in its spec, in its status, and ready."""

    wanted: int
    present: int
    ready: int


def proposal(readings: Sequence[Reading | None], replicas: Replicas) -> int | None:
    """The replicas that metrics ask for; None where that cannot be said, and nothing may change.

    Args: `readings`, None where a metric is missing.
    """
    asked = [_asked(reading, replicas) for reading in readings if reading]
    if not asked or (None in readings and max(asked) < replicas.wanted):
        return None
    return max(asked)


def _asked(reading: Reading, replicas: Replicas) -> int:
    ratio = reading.value / reading.target
    if reading.per_replica:
        near = replicas.present and abs(1 - ratio / replicas.present) <= TOLERANCE
        return replicas.present if near else math.ceil(ratio)
    near = abs(1 - ratio) <= TOLERANCE
    return replicas.wanted if near else math.ceil(ratio * replicas.ready)


class Change(NamedTuple):
    """Replicas that were recommended, or that became more or less, at a time in seconds."""

    time: float
    replicas: int


class Autoscaler:
    """The memory of one HPA: what it recommended, and by how much it scaled when."""

    def __init__(self) -> None:
        self._recommended: list[Change] = []
        self._scaled: list[Change] = []

    def decide(self, spec: dict[str, Any], now: float, current: int, asked: int | None) -> int:
        """The replicas to have from now on.

        Args: `spec` of the HPA; `asked` by `proposal`, None to leave what is.
        """
        behavior = spec.get("behavior", {})
        up, down = UP | behavior.get("scaleUp", {}), DOWN | behavior.get("scaleDown", {})
        least, most = spec.get("minReplicas", 1), spec["maxReplicas"]
        if not self._recommended:
            self._recommended.append(Change(now, current))
        if current == 0 or (asked is None and least <= current <= most):
            return current
        desired = current
        if asked is not None and least <= current <= most:
            desired = self._stabilized(now, current, asked, up, down)
            if desired > current:
                desired = min(desired, max(current, math.ceil(self._limit(now, current, up, 1))))
            else:
                desired = max(desired, min(current, int(self._limit(now, current, down, -1))))
        desired = min(max(desired, least), most)
        self._scaled.append(Change(now, desired - current))
        return desired

    def _stabilized(self, now: float, current: int, asked: int, up: Rules, down: Rules) -> int:
        """The change that all recommendations of its direction's window agree on."""
        self._recommended.append(Change(now, asked))

        def within(rules: Rules) -> list[int]:
            since = now - rules["stabilizationWindowSeconds"]
            return [asked, *(n for time, n in self._recommended if time > since)]

        return min(max(current, min(within(up))), max(within(down)))

    def _limit(self, now: float, current: int, rules: Rules, sign: int) -> float:
        """How far the most generous policy lets it go, up or down."""
        limits = []
        for policy in rules["policies"]:
            since = now - policy["periodSeconds"]
            start = current - sum(n for time, n in self._scaled if time > since)
            part = start / 100 if policy["type"] == "Percent" else 1
            limits.append(start + sign * part * policy["value"])
        return sign * max(sign * limit for limit in limits)
