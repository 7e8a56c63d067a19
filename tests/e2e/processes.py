"""Real Radixgate processes for tests: start, wait until ready, kill, restart, stop.

Every process runs in a session of its own, logs to a file, and ends with the fixture it is of.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

START_SECONDS = 120


def free_port() -> int:
    """A loopback port that nothing listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(check: Callable[[], T | None], seconds: float, what: str) -> T:
    """The first truthy result of `check`, asked every 50 ms; fails the test after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        if result := check():
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.05)


class Process:
    """One process of the fleet.

    Args:
        name: for the log file and messages.
        command: its argument vector.
        ready: pattern of the log line that says it serves.
        log_dir: where its log goes.
    """

    def __init__(self, name: str, command: Sequence[str], ready: str, log_dir: Path) -> None:
        self.name = name
        self.command = list(command)
        self.ready = re.compile(ready)
        self.log = log_dir / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Process":
        """Start it and wait until it is ready."""
        self.launch()
        self.wait_ready()
        return self

    def launch(self) -> None:
        """Start it and return at once."""
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def wait_ready(self) -> None:
        """Wait for the ready line of this life of the process."""

        def check() -> bool:
            if not self.alive:
                raise AssertionError(f"{self.name} ended during start:\n{self.output()[-4000:]}")
            return bool(self.ready.search(self.output()))

        wait_until(check, START_SECONDS, f"{self.name} ready; its log: {self.log}")

    def output(self) -> str:
        """What this life of the process has logged."""
        return self.log.read_bytes()[self._log_start :].decode(errors="replace")

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process alone, not to its children."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9, and wait for the end."""
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self, seconds: float = 20.0) -> int:
        """The exit code."""
        assert self._process is not None
        return self._process.wait(seconds)

    def stop(self) -> None:
        """End it however it takes; safe to repeat."""
        if not self.alive:
            return
        self.signal(signal.SIGTERM)
        try:
            self.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()


class Fleet:
    """Redis, gateways and workers of one test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.parts: list[Process] = []

    def redis(self, port: int, *options: str) -> Process:
        """A Valkey server that keeps nothing on disk."""
        from gateway.summary.redis import server_program

        command = [server_program(), "--port", str(port), "--bind", "127.0.0.1"]
        command += ["--save", "", "--dir", str(self.directory), *options]
        return self._add(f"redis-{port}", command, "Ready to accept connections")

    def sentinel(self, port: int, redis_port: int, master: str) -> Process:
        """The only Sentinel of `master`, which it takes for dead after three seconds of silence.

        Less, and a machine that stalls while a test starts its processes has a failover before the
        test begins, with gateways at either master for ten seconds.
        """
        from gateway.summary.redis import server_program

        config = self.directory / f"sentinel-{port}.conf"
        config.write_text(
            f"port {port}\nbind 127.0.0.1\ndir {self.directory}\n"
            f"sentinel monitor {master} 127.0.0.1 {redis_port} 1\n"
            f"sentinel down-after-milliseconds {master} 3000\n"
            f"sentinel failover-timeout {master} 4000\n"
        )
        command = [server_program(), str(config), "--sentinel"]
        return self._add(f"sentinel-{port}", command, "[+]monitor master")

    def gateway(self, port: int, redis_port: int | None = None, *options: str) -> Process:
        """A gateway; without `redis_port` it brings its embedded Valkey."""
        command = _radixgate("gateway", "--port", str(port), *options)
        if redis_port is not None:
            command += ["--redis", f"redis://127.0.0.1:{redis_port}"]
        return self._add(f"gateway-{port}", command, "gateway ready on ")

    def worker(
        self, name: str, model: Path, gateways: Sequence[int], *options: str, log: str = ""
    ) -> Process:
        """A worker on the CPU, reporting to those gateways' ports; `log` where ids are equal."""
        command = _radixgate("worker", "--model", str(model), "--worker-id", name)
        command += ["--device", "cpu", "--threads", "1", "--port", str(free_port()), *options]
        if gateways:
            command += ["--gateway", ",".join(f"127.0.0.1:{port}" for port in gateways)]
        return self._add(log or f"worker-{name}", command, "worker ready on ")

    def stop(self) -> None:
        """End all parts, newest first."""
        for part in reversed(self.parts):
            part.stop()

    def logs(self) -> str:
        """The tail of every log, for a failed test."""
        tails = (f"== {part.name}\n{part.log.read_text()[-3000:]}" for part in self.parts)
        return "\n".join(tails)

    def _add(self, name: str, command: list[str], ready: str) -> Process:
        part = Process(name, command, ready, self.directory)
        self.parts.append(part)
        return part


def _radixgate(*arguments: str) -> list[str]:
    return [os.path.join(os.path.dirname(sys.executable), "radixgate"), *arguments]
