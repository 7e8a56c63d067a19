"""Files of rows, and what of a trace does not depend on which ids its blocks have."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sim.request import Trace


def json_lines(path: Path, rows: Iterable[object]) -> Path:
    """`path`, with a line of JSON for each of `rows`."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def text(path: Path, *lines: str) -> Path:
    """`path`, with these lines."""
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def blocks(trace: Trace) -> list[list[int]]:
    """The ids of each prompt, numbered in the order in which they appear."""
    numbers: dict[int, int] = {}
    return [
        [numbers.setdefault(id_, len(numbers)) for id_ in request.prompt.ids]
        for request in trace.requests
    ]


def numbered(prompts: Iterable[Iterable[Any]]) -> list[list[int]]:
    """The same for names of blocks."""
    numbers: dict[Any, int] = {}
    return [[numbers.setdefault(name, len(numbers)) for name in names] for names in prompts]


def alike(one: Sequence[object], other: Sequence[object]) -> int:
    """How many items they begin with are the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
