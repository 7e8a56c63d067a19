"""What a HorizontalPodAutoscaler (autoscaling/v2) decides. Pure: readings and the time come in.

Faithful to the documented algorithm, and to the controller's code where that says more: tolerance,
External metrics as Value and AverageValue, the largest proposal of several metrics, a missing one
that forbids scaling down, stabilisation windows, Pods and Percent policies, selectPolicy, bounds.
Not here: Resource, Pods and Object metrics (they count as missing), tolerances of a behavior.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

TOLERANCE: Final = 0.1

_SUFFIXES: Final = {
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
}


def quantity(text: str | float) -> float:
    """A Kubernetes quantity as a number: `1500m` is 1.5."""
    text = str(text)
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        if text.endswith(suffix):
            return float(text.removesuffix(suffix)) * _SUFFIXES[suffix]
    return float(text)


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
    if replicas.wanted == 0:
        return math.ceil(ratio)
    near = abs(1 - ratio) <= TOLERANCE
    return replicas.wanted if near else math.ceil(ratio * replicas.ready)


class Policy(NamedTuple):
    """At most `value` pods, or percent, within `period` seconds."""

    percent: bool
    value: int
    period: float


class Rules(NamedTuple):
    """One direction of a behavior; `select` is Max, Min or Disabled."""

    window: float
    select: str
    policies: tuple[Policy, ...]

    @classmethod
    def of(cls, spec: dict[str, Any], default: "Rules") -> "Rules":
        policies = tuple(
            Policy(policy["type"] == "Percent", policy["value"], policy["periodSeconds"])
            for policy in spec.get("policies") or ()
        )
        return cls(
            spec.get("stabilizationWindowSeconds", default.window),
            spec.get("selectPolicy", default.select),
            policies or default.policies,
        )


UP: Final = Rules(0, "Max", (Policy(True, 100, 15), Policy(False, 4, 15)))
DOWN: Final = Rules(300, "Max", (Policy(True, 100, 15),))


class Change(NamedTuple):
    """So many replicas more or less, or recommended, at a time in seconds."""

    time: float
    replicas: int


@dataclass
class Autoscaler:
    """The memory of one HPA: what it recommended, and by how much it scaled when."""

    recommendations: list[Change] = field(default_factory=list)
    ups: list[Change] = field(default_factory=list)
    downs: list[Change] = field(default_factory=list)

    def decide(self, spec: dict[str, Any], now: float, current: int, asked: int | None) -> int:
        """The replicas to have from now on.

        Args: `spec` of the HPA; `asked` by `proposal`, None to leave what is.
        """
        behavior = spec.get("behavior") or {}
        up = Rules.of(behavior.get("scaleUp") or {}, UP)
        down = Rules.of(behavior.get("scaleDown") or {}, DOWN)
        least: int = spec.get("minReplicas", 1)
        most: int = spec["maxReplicas"]
        if not self.recommendations:
            self.recommendations.append(Change(now, current))
        if current == 0 and least != 0:
            return 0
        if not least <= current <= most:
            desired = min(max(current, least), most)
        elif asked is None:
            return current
        else:
            desired = self._stabilized(now, current, asked, up, down)
            desired = self._limited(now, current, desired, up, down)
            desired = min(max(desired, least), most)
        if desired > current:
            self.ups.append(Change(now, desired - current))
        elif desired < current:
            self.downs.append(Change(now, current - desired))
        return desired

    def _stabilized(self, now: float, current: int, asked: int, up: Rules, down: Rules) -> int:
        past = self.recommendations
        lowest = min([asked, *(n for time, n in past if time > now - up.window)])
        highest = max([asked, *(n for time, n in past if time > now - down.window)])
        kept = [change for change in past if change.time > now - max(up.window, down.window)]
        self.recommendations = [*kept, Change(now, asked)]
        return min(max(current, lowest), highest)

    def _limited(self, now: float, current: int, desired: int, up: Rules, down: Rules) -> int:
        def start(policy: Policy) -> int:
            """Replicas at the beginning of a policy's period."""
            since = now - policy.period
            return current - _total(self.ups, since) + _total(self.downs, since)

        def limit(rules: Rules, sign: int, whole: Callable[[float], int]) -> int:
            if rules.select == "Disabled":
                return current
            limits = [
                whole(start(policy) * (1 + sign * policy.value / 100))
                if policy.percent
                else start(policy) + sign * policy.value
                for policy in rules.policies
            ]
            # Max is the most change: the highest limit upwards, the lowest downwards.
            return max(limits) if (rules.select == "Max") == (sign > 0) else min(limits)

        if desired > current:
            return min(desired, max(current, limit(up, 1, math.ceil)))
        return max(desired, min(current, limit(down, -1, int)))


def _total(changes: Iterable[Change], since: float) -> int:
    return sum(change.replicas for change in changes if change.time > since)
