"""Opens a trace, whatever its format is: that is seen from the fields of its first row."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from sim.request import Trace
from sim.trace import azure, burstgpt, chats, mooncake, request_log, sessions
from sim.trace.lines import rows
from sim.trace.row import Row, TraceError

Read = Callable[[str, Iterable[Row]], Trace]


class Format(NamedTuple):
    """Args: the `fields` by which a row of it is known; how to `read` it."""

    fields: Sequence[str]
    read: Read


FORMATS: Final = {
    "mooncake": Format(("input_length", "hash_ids"), mooncake.read),
    "sessions": Format(("fields", "requests"), sessions.read),
    "request-log": Format(("stride", "hashes"), request_log.read),
    "chats": Format(("messages",), chats.read),
    "azure": Format(("ContextTokens", "GeneratedTokens"), azure.read),
    "burstgpt": Format(("Request tokens", "Response tokens"), burstgpt.read),
}


def open_trace(
    path: Path, format: str | None = None, *, session_gap: float = sessions.GAP
) -> Trace:
    """The trace in a file.

    Args:
        path: of the file, which may be compressed with gzip.
        format: a key of `FORMATS`; None finds it out.
        session_gap: seconds from one session to the next, where sessions have no date.

    Raises:
        TraceError: it cannot be read; the message names the line.
    """
    if format is not None and format not in FORMATS:
        raise TraceError(f"format {format!r}: there are {', '.join(FORMATS)}")
    found = rows(path)
    first = next(found, None)
    if first is None:
        raise TraceError(f"{path}: empty: there is no request in it")
    name = format or _format_of(first)
    read = FORMATS[name].read
    if name == "sessions":
        read = partial(sessions.read, gap=session_gap)
    trace = read(path.name, chain([first], found))
    if not trace.requests:
        raise TraceError(f"{path}: there is no request in it")
    return trace


def _format_of(row: Row) -> str:
    for name, format in FORMATS.items():
        if all(map(row.values.__contains__, format.fields)):
            return name
    if any(isinstance(row.values.get(field), Mapping) for field in ("request", "body")):
        return "chats"
    known = "; ".join(f"{name}: {', '.join(each.fields)}" for name, each in FORMATS.items())
    found = ", ".join(map(str, row.values))[:200] or "none"
    # NOTE: not with the line of the row, for the first one of a CSV file names the fields.
    raise TraceError(
        f"{row.file}: no format is known by the fields {found}; those that are: {known}"
    )
