"""Values that a person writes, and what is wrong with them."""

import math


class PlanError(ValueError):
    """What is asked for cannot be simulated."""


def whole(name: str, text: str) -> int:
    """The number, at least 1, that `text` says for `name`. Raises PlanError: it says none."""
    if not text.isdecimal() or not int(text):
        raise PlanError(f"{name} {text!r}: wanted is a whole number, 1 or more")
    return int(text)


def positive(name: str, text: str) -> float:
    """The number above 0 that `text` says for `name`. Raises PlanError: it says none."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise PlanError(f"{name} {text!r}: wanted is a number above 0")
    return number
