"""Generated traces by what a person writes: `chat:requests=2000,rate=5,seed=1`."""

from dataclasses import fields
from typing import Final

from sim.request import Trace
from sim.trace.generate.base import Generator
from sim.trace.generate.sessions import Agents, Chat
from sim.trace.generate.single import Rag, Shared, Unique
from sim.trace.row import TraceError

GENERATORS: Final[dict[str, type[Generator]]] = {
    "shared": Shared,
    "chat": Chat,
    "rag": Rag,
    "agents": Agents,
    "unique": Unique,
}


def is_generated(spec: str) -> bool:
    """Whether `spec` begins with the name of a generator."""
    return spec.partition(":")[0] in GENERATORS


def generated(spec: str) -> Trace:
    """The trace of `NAME` or `NAME:SETTING=VALUE,…`. It is named by that.

    Raises:
        TraceError: there is no such generator or setting, or the value is wrong.
    """
    name, _, settings = spec.partition(":")
    if name not in GENERATORS:
        raise TraceError(f"{spec!r}: no generator {name!r}; there are {', '.join(GENERATORS)}")
    kind = GENERATORS[name]
    defaults = {field.name: field.default for field in fields(kind)}
    values: dict[str, int | float] = {}
    for setting in filter(None, settings.split(",")):
        key, _, value = setting.partition("=")
        if key not in defaults:
            raise TraceError(f"{spec!r}: {name} has no {key!r}; it has {', '.join(defaults)}")
        if key in values:
            raise TraceError(f"{spec!r}: {key} is named twice")
        number = int if isinstance(defaults[key], int) else float
        try:
            values[key] = number(value)
        except ValueError:
            wanted = "an integer" if number is int else "a number"
            raise TraceError(f"{spec!r}: {key} must be {wanted}, and is {value!r}") from None
    try:
        return kind(**values).trace(spec)  # type: ignore[arg-type]
    except TraceError as error:
        raise TraceError(f"{spec!r}: {error}") from error
