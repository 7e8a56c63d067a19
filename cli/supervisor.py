"""Runs the parts of a fleet as processes that all end together.

Every part leads a process group of its own, so that Ctrl-C reaches the supervisor alone, and the
kernel kills it when the supervisor dies, however that dies (on Linux).
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Self, TypeVar

from radixgate.leash import leashed

from cli.exits import CommandError

POLL_SECONDS = 0.1
STOP_SECONDS = 15.0
LOG_TAIL = 15

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Part:
    """A process of the fleet; `log` is the file that takes its output."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def output(self) -> str:
        """All that it has logged."""
        return self.log.read_text(errors="replace")

    def tail(self) -> str:
        """The last lines of its log."""
        lines = self.output().rstrip().splitlines()[-LOG_TAIL:]
        return "\n".join(f"  {line}" for line in lines) or "  (its log is empty)"

    def kill(self) -> None:
        """End it and all it started, at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Supervisor:
    """A context that ends all parts: the first that was started, on which the others lean, last."""

    def __init__(self, log_directory: Path) -> None:
        self._logs = log_directory
        self._parts: list[Part] = []

    def __enter__(self) -> Self:
        self._logs.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._end(self._parts[1:])
            self._end(self._parts[:1])
        except BaseException:  # a second Ctrl-C: no more patience
            for part in self._parts:
                part.kill()
            raise

    def start(self, name: str, *arguments: str) -> Part:
        """Start `radixgate` with these arguments as a part; returns at once."""
        log = self._logs / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                leashed(sys.executable, "-m", "cli.main", *arguments),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        part = Part(name, process, log)
        self._parts.append(part)
        return part

    def wait_for_line(self, part: Part, pattern: str, seconds: float) -> str:
        """What the first group of `pattern` matches in the log of `part`, once it does.

        Raises:
            CommandError: a part has ended, or the time is over.
        """

        def find() -> str | None:
            match = re.search(pattern, part.output())
            return match and match[1]

        return self.wait_until(
            find, seconds, lambda: f"{part.name} is not ready; its last lines:\n{part.tail()}"
        )

    def wait_until(
        self, find: Callable[[], Found | None], seconds: float, late: Callable[[], str]
    ) -> Found:
        """What `find` gives, once it gives something.

        Raises:
            CommandError: a part has ended, or the time is over, told in the words of `late`.
        """
        deadline = time.monotonic() + seconds
        while not (found := find()):
            self.check()
            if time.monotonic() > deadline:
                raise CommandError(f"after {seconds:.0f} s: {late()}")
            time.sleep(POLL_SECONDS)
        return found

    def watch(self) -> NoReturn:
        """Wait until a part ends.

        Raises:
            CommandError: always; it names the part and has its last lines.
        """
        while True:
            self.check()
            time.sleep(POLL_SECONDS)

    def check(self) -> None:
        """Check that all parts run.

        Raises:
            CommandError: one does not; it names the part and has its last lines.
        """
        for part in self._parts:
            if (code := part.process.poll()) is not None:
                raise CommandError(f"{part.name} {ending(code)}; its last lines:\n{part.tail()}")

    def _end(self, parts: Sequence[Part]) -> None:
        """End `parts` together; those that take too long are killed."""
        for part in parts:
            part.process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for part in parts:
            try:
                part.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                part.kill()


def ending(code: int) -> str:
    """How a process with this return code ended, for people."""
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
