"""What a trigger of a ScaledObject asks for, read from its metadata. Pure."""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from grpc import StatusCode
from radixgate.refused import RefusedError

from gateway.scale.desired import TARGETS, Metric

OF_KEDA: Final = frozenset({"scalerAddress", "enableTLS", "unsafeSsl"})
"""Keys that are there for KEDA, which passes on all that the trigger has."""

OURS: Final = ("model", "metric", "target", "scaleToZero")
LEAST_TARGET: Final = 0.001
"""KEDA counts in thousandths."""

MOST_TARGET: Final = 1e6
"""No metric is above it."""


class Trigger(NamedTuple):
    """Args: the `model`, or an alias; `metric`; its `target` for a worker; `scale_to_zero`."""

    model: str
    metric: Metric
    target: float
    scale_to_zero: bool

    @classmethod
    def parse(cls, metadata: Mapping[str, str]) -> "Trigger":
        """From the `scalerMetadata` of a ScaledObjectRef.

        Raises:
            RefusedError: INVALID_ARGUMENT, a key or value is unknown or missing.
        """
        unknown = sorted(metadata.keys() - OF_KEDA - {*OURS})
        if unknown:
            raise _wrong(f"{unknown[0]!r} is unknown; there are {', '.join(OURS)}")
        if not metadata.get("model"):
            raise _wrong("'model' is missing; name the model whose workers are scaled")
        metric = _metric(metadata.get("metric", Metric.DESIRED_WORKERS.value))
        return cls(
            metadata["model"],
            metric,
            _target(metadata["target"], metric) if "target" in metadata else TARGETS[metric],
            _flag(metadata.get("scaleToZero", "false")),
        )


def _metric(text: str) -> Metric:
    try:
        return Metric(text)
    except ValueError:
        known = ", ".join(metric.value for metric in Metric)
        raise _wrong(f"metric {text!r} is unknown; there are {known}") from None


def _target(text: str, metric: Metric) -> float:
    try:
        target = float(text)
    except ValueError:
        target = math.nan
    if not LEAST_TARGET <= target <= MOST_TARGET:
        raise _wrong(f"target {text!r} is no number from {LEAST_TARGET:g} to {MOST_TARGET:g}")
    if metric is Metric.DESIRED_WORKERS and target != TARGETS[metric]:
        raise _wrong(
            f"target {text!r} would have the pool be another size than {metric.value} says;"
            " leave it out"
        )
    return target


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise _wrong(f"scaleToZero {text!r} is neither 'true' nor 'false'")
    return text == "true"


def _wrong(message: str) -> RefusedError:
    return RefusedError(StatusCode.INVALID_ARGUMENT, f"metadata: {message}")
