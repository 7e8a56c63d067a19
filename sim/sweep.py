"""What `--sweep` asks for: every combination of the values that some settings take. Pure."""

import re
from collections.abc import Collection, Iterable
from decimal import Decimal
from itertools import product
from math import prod

MOST = 1000
"""Combinations; more are taken for a slip."""

_NUMBER = r"(\d+(?:\.\d+)?)"
_RANGE = re.compile(rf"{_NUMBER}\.\.{_NUMBER}(?:\.\.{_NUMBER})?")


class SweepError(ValueError):
    """What is asked for cannot be swept."""


def combinations(axes: Iterable[str], known: Collection[str]) -> list[dict[str, str]]:
    """The settings of each run, the last axis varying fastest.

    Args:
        axes: each `name=values`. Values are parted by commas, and each is a text or a range:
            `2..16`, by ones, or `2..16..4`; the end belongs to it if it is met.
        known: names that can be swept.

    Raises:
        SweepError: an axis is not like that, is unknown or named twice, or there are too many.
    """
    values: dict[str, list[str]] = {}
    for axis in axes:
        name, separator, text = axis.partition("=")
        if not (separator and text):
            raise SweepError(f"{axis!r}: write name=values, such as workers=2..16")
        if name not in known:
            raise SweepError(f"{axis!r}: {name!r} cannot be swept, only {', '.join(sorted(known))}")
        if name in values:
            raise SweepError(f"{axis!r}: {name} is swept already; part values by commas")
        values[name] = _values(axis, text)
    count = prod(map(len, values.values()))
    if count > MOST:
        sizes = " x ".join(f"{len(each)} {name}" for name, each in values.items())
        raise SweepError(f"{sizes} are {count} runs, and {MOST} are the most")
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def _values(axis: str, text: str) -> list[str]:
    values = [value for part in text.split(",") for value in _part(axis, part.strip())]
    twice = sorted({value for value in values if values.count(value) > 1})
    if twice:
        raise SweepError(f"{axis!r}: more than once: {', '.join(twice)}")
    return values


def _part(axis: str, part: str) -> list[str]:
    if not part:
        raise SweepError(f"{axis!r}: a value is missing between its commas")
    if ".." not in part:
        return [part]
    match = _RANGE.fullmatch(part)
    if match is None:
        raise SweepError(f"{axis!r}: {part!r} is no range such as 2..16 or 2..16..4")
    first, last, step = (Decimal(number or 1) for number in match.groups())
    if last < first or not step:
        raise SweepError(f"{axis!r}: {part!r} has no values; write low..high..step")
    count = int((last - first) / step) + 1
    if count > MOST:
        raise SweepError(f"{axis!r}: {part!r} are {count} values, and {MOST} are the most")
    return [str(first + place * step) for place in range(count)]
