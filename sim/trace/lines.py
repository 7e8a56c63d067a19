"""The rows of a file: JSON Lines or CSV, plain or compressed with gzip."""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final, TextIO

from sim.trace.row import Row, TraceError

GZIP_MAGIC: Final = b"\x1f\x8b"


def rows(path: Path) -> Iterator[Row]:
    """The rows of `path`, one after the other; lines that are blank are passed over.

    It is JSON Lines if the first line begins with a brace, and else CSV whose first line names the
    fields.

    Raises:
        TraceError: the file cannot be read, or a line is neither.
    """
    line = 0
    try:
        with _text(path) as text:
            for row in _rows(path, text):
                line = row.line
                yield row
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(
            f"{path}: the compressed data is cut off or damaged{_after(line)}: {error};"
            " copy the file again"
        ) from error
    except UnicodeDecodeError as error:
        raise TraceError(
            f"{path}: not text in UTF-8{_after(line)}: {error}; what is compressed must be so with"
            " gzip"
        ) from error
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error


def _after(line: int) -> str:
    return f" after line {line}" if line else ""


@contextmanager
def _text(path: Path) -> Iterator[TextIO]:
    with path.open("rb") as file:
        compressed = file.peek(len(GZIP_MAGIC))[: len(GZIP_MAGIC)] == GZIP_MAGIC
        with io.TextIOWrapper(
            gzip.GzipFile(fileobj=file) if compressed else file, "utf-8-sig", newline=""
        ) as text:
            yield text


def _rows(path: Path, text: TextIO) -> Iterator[Row]:
    lines = ((number, line) for number, line in enumerate(text, 1) if line.strip())
    first = next(lines, None)
    if first is None:
        return
    if first[1].lstrip().startswith("["):
        raise TraceError(
            f"{path}, line {first[0]}: a JSON array; wanted is JSON Lines, an object a line, as"
            " jq -c '.[]' makes of it"
        )
    if first[1].lstrip().startswith("{"):
        for number, line in chain([first], lines):
            yield Row(_object(path, number, line), str(path), number)
    else:
        header = [field.strip() for field in _cells(path, *first)]
        for number, line in lines:
            cells = _cells(path, number, line)
            if len(cells) != len(header):
                raise TraceError(
                    f"{path}, line {number}: {len(cells)} columns, and the first line names"
                    f" {len(header)}: {', '.join(header)}"[:400]
                )
            yield Row(dict(zip(header, cells, strict=True)), str(path), number)


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line.rstrip())
    except json.JSONDecodeError as error:
        raise TraceError(
            f"{path}, line {number}: not JSON: {error.msg}, at character {error.colno}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path}, line {number}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise TraceError(
            f"{path}, line {number}: must be a JSON object, and is {line.strip()[:80]}"
        )
    return value


def _cells(path: Path, number: int, line: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error as error:
        raise TraceError(f"{path}, line {number}: not CSV: {error}") from error
