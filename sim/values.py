"""Values that a person writes, and what is wrong with them."""

import math
from typing import Final

MOST: Final = 2**31 - 1
"""Of whole numbers; more are taken for a slip."""


class PlanError(ValueError):
    """What is asked for cannot be simulated."""


def whole(name: str, text: str, most: int = MOST) -> int:
    """The number, 1 to `most`, that `text` says for `name`. Raises PlanError: it says none."""
    digits = text.lstrip("0") if text.isdecimal() else ""
    if not digits or len(digits) > len(str(most)) or int(digits) > most:
        raise PlanError(f"{name} {text!r}: wanted is a whole number, 1 to {most:,}")
    return int(digits)


def positive(name: str, text: str) -> float:
    """The number above 0 that `text` says for `name`. Raises PlanError: it says none."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise PlanError(f"{name} {text!r}: wanted is a number above 0")
    return number
