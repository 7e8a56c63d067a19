"""One long step of a pull: a command in a process of its own, watched by the bytes it writes.

A process can be ended at once, keeps its chatter out of the terminal, and gives its memory back.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

LOG_TAIL = 8
POLL_SECONDS = 0.2


class PullError(Exception):
    """A model could not be pulled; the message says which, why, and what to do."""


class Progress(Protocol):
    """Told how far a pull is."""

    def __call__(self, step: str, done: int, total: int) -> None:
        """`done` of `total` bytes of `step`; a `total` of 0 is unknown."""


def run_step(
    step: str,
    command: Sequence[str],
    *,
    log: Path,
    watched: Path,
    total: int,
    progress: Progress,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run `command` to its end; whatever ends this ends it.

    Args:
        step: what it does, for people: "download", "convert".
        command: its argument vector.
        log: the file that takes its output.
        watched: the directory it writes into.
        total: bytes that will be there at the end; 0 when unknown.
        progress: told several times a second.
        environment: variables to add to those of this process.

    Raises:
        PullError: it failed; the message has the last lines of its output.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
        )
    try:
        while (code := _wait(process)) is None:
            written = _bytes_under(watched)
            progress(step, min(written, total) if total else written, total)
    finally:
        process.kill()
        process.wait()
    if code:
        tail = "\n".join(log.read_text(errors="replace").rstrip().splitlines()[-LOG_TAIL:])
        raise PullError(f"{step} failed with exit code {code}:\n{tail}")
    if total:
        progress(step, total, total)


def _wait(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def _bytes_under(directory: Path) -> int:
    """Bytes of all files below `directory`, some of which may vanish while they are counted."""
    total = 0
    for parent, _, files in os.walk(directory):
        for name in files:
            try:
                total += os.stat(os.path.join(parent, name)).st_size
            except FileNotFoundError:
                continue
    return total
