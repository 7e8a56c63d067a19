"""One row of a file, from which readers take values that they can rely on.

What is asked for and is not there, or is not what it should be, is a `TraceError` that names the
place. Fields that nobody asks for do not matter.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

MAX_TOKENS: Final = 2**24
"""Of a prompt or an answer: what is longer is taken for a mistake."""

SHOWN: Final = 80
"""Characters of a wrong value that are shown."""


class TraceError(ValueError):
    """A trace cannot be read, or not be generated; the message says where, why and what to do."""


@dataclass(frozen=True, slots=True)
class Row:
    """Args: `values` by field; `file` and `line`, counted from 1, where it is; `part` of the line
    that it is, counted from 1, or 0 for all of it.
    """

    values: Mapping[str, Any]
    file: str
    line: int
    part: int = 0

    def wrong(self, problem: str) -> TraceError:
        """The error that says what is wrong with this row."""
        part = f", request {self.part}" if self.part else ""
        return TraceError(f"{self.file}, line {self.line}{part}: {problem}")

    def has(self, field: str) -> bool:
        """Whether there is such a field, and something in it."""
        return self.values.get(field) not in (None, "")

    def value(self, field: str) -> Any:
        """Whatever is there.

        Raises:
            TraceError: there is no such field, or nothing in it.
        """
        if not self.has(field):
            found = ", ".join(map(repr, self.values)) or "none"
            raise self.wrong(f"{field!r} is missing; there are the fields {found}"[:400])
        return self.values[field]

    def tokens(self, field: str, least: int = 0) -> int:
        """A number of tokens, `least` to `MAX_TOKENS`.

        Raises:
            TraceError: it is not there, or is something else.
        """
        return self.integer(field, least, MAX_TOKENS)

    def integer(self, field: str, least: int, most: int) -> int:
        """An integer from `least` to `most`, also when it is written as text or as 3.0.

        Raises:
            TraceError: it is not there, or is something else.
        """
        wanted = f"an integer from {least:,} to {most:,}"
        number = self._number(field, wanted)
        if not (number.is_integer() and least <= number <= most):
            raise self._not(field, wanted)
        return int(number)

    def seconds(self, field: str, least: float = -math.inf) -> float:
        """A number that is finite, `least` or more, also when it is written as text.

        Raises:
            TraceError: it is not there, or is something else.
        """
        wanted = "a number" if least == -math.inf else f"a number, {least:g} or more"
        number = self._number(field, wanted)
        if not (math.isfinite(number) and number >= least):
            raise self._not(field, wanted)
        return number

    def moment(self, field: str) -> float:
        """A point in time, in seconds: a number, or date and time as in ISO 8601 (UTC, if it does
        not say).

        Raises:
            TraceError: it is not there, or is something else.
        """
        value = self.value(field)
        if not isinstance(value, str):
            return self.seconds(field)
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            try:
                return self.seconds(field)
            except TraceError:
                raise self._not(field, "a time, in seconds or as in ISO 8601") from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()

    def text(self, field: str) -> str:
        """Text, or a number as text; "" when there is no such field.

        Raises:
            TraceError: it is something else.
        """
        value = self.values.get(field)
        if value is None:
            return ""
        if isinstance(value, str | int | float):
            return str(value)
        raise self._not(field, "text")

    def items(self, field: str) -> list[Any]:
        """A list.

        Raises:
            TraceError: it is not there, or is something else.
        """
        value = self.value(field)
        if not isinstance(value, list):
            raise self._not(field, "a list")
        return value

    def names(self, field: str) -> "list[int | str]":
        """A list of integers or texts that name something.

        Raises:
            TraceError: it is not there, or is something else.
        """
        names = self.items(field)
        if not {type(name) for name in names} <= {int, str}:
            raise self._not(field, "a list of integers")
        return names

    def _number(self, field: str, wanted: str) -> float:
        value = self.value(field)
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise self._not(field, wanted)
        try:
            return float(value)
        except (ValueError, OverflowError):
            raise self._not(field, wanted) from None

    def _not(self, field: str, wanted: str) -> TraceError:
        found = repr(self.values[field])
        shown = found if len(found) <= SHOWN else f"{found[:SHOWN]}…"
        return self.wrong(f"{field!r} must be {wanted}, and is {shown}")
