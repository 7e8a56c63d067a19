"""A real Valkey process that a test may kill and start again, empty, at the same address."""

import asyncio
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import redis

from gateway.summary.redis import server_program


class Valkey:
    def __init__(self, directory: Path) -> None:
        self._socket = directory / "valkey.sock"
        self.url = f"unix://{self._socket}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        arguments = ["--port", "0", "--unixsocket", str(self._socket), "--save", ""]
        self._process = subprocess.Popen(
            [server_program(), *arguments],
            stdout=subprocess.DEVNULL,
            cwd=self._socket.parent,
        )
        client = redis.Redis.from_url(self.url)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with suppress(redis.RedisError):
                client.ping()
                client.close()
                return
            time.sleep(0.01)
        raise TimeoutError("valkey did not start")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


async def eventually(condition: Callable[[], bool], what: str, seconds: float = 10) -> None:
    """Wait until `condition` holds; fails, saying what was awaited, when it does not."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for: {what}"
        await asyncio.sleep(0.002)
