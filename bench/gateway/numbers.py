"""From raw times to what is printed."""

from collections.abc import Iterable, Sequence
from operator import sub, truediv
from statistics import median
from typing import Any, TypeAlias

Round: TypeAlias = dict[str, dict[str, float]]
"""What was measured of each candidate in one round, by names."""

DIRECT, FLOOR = "direct", "floor"
TIMES = "p50_ms", "p99_ms"


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that so many of 100 do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def spread(seconds: Sequence[float]) -> dict[str, Any]:
    """Median and 99th percentile in milliseconds, and the raw ones."""
    raw = [round(1000 * each, 3) for each in seconds]
    return {"p50_ms": percentile(raw, 50), "p99_ms": percentile(raw, 99), "raw_ms": raw}


def compared(rounds: Sequence[Round]) -> dict[str, Any]:
    """Medians over all rounds: of each candidate, and of each one in the middle by the floor.

    With a candidate that asks directly, also what those in the middle add to it.
    """
    keys = list(rounds[0][FLOOR])
    middle = [name for name in rounds[0] if name not in (DIRECT, FLOOR)]

    def column(name: str, key: str) -> list[float]:
        return [each[name][key] for each in rounds]

    def added(name: str, key: str) -> list[float]:
        return [*map(sub, column(name, key), column(DIRECT, key))]

    result: dict[str, Any] = {
        "medians": {name: {key: middling(column(name, key)) for key in keys} for name in rounds[0]},
        "by floor": {
            name: {
                key: middling(map(truediv, column(name, key), column(FLOOR, key))) for key in keys
            }
            for name in middle
        },
    }
    if DIRECT in rounds[0]:
        result["added"] = {
            name: {key: middling(added(name, key)) for key in TIMES} for name in (FLOOR, *middle)
        }
        result["added by floor"] = {
            name: middling(map(truediv, added(name, "p50_ms"), added(FLOOR, "p50_ms")))
            for name in middle
        }
    return result | {"rounds": rounds}


def middling(values: Iterable[float]) -> float:
    """Their median, as it is printed."""
    return round(median(values), 3)
