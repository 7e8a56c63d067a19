"""Several gateway processes on one port, and the parent that keeps them running.

The parent serves nothing: it holds the port, runs the embedded Redis if there is to be one, starts
a process again when it has died, and passes signals on. Each process is a whole gateway, with a
mirror and an id of its own; they share what gateways share, through Redis, and the kernel deals out
connections among them. They are fresh interpreters, since grpc does not survive a fork, and the
kernel ends them with the parent (on Linux).
"""

import asyncio
import logging
import pickle
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Final, Self

from radixgate.leash import leashed
from radixgate.serving import StopSignals

from cli.exits import CommandError, ExitCode
from cli.ports import hold_port
from cli.supervisor import ending
from gateway.config import GatewayConfig
from gateway.summary.redis import RedisSetupError, embedded_server

logger = logging.getLogger(__name__)

COMMAND: Final = (sys.executable, "-m", "cli.gateway_process")
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
LONG_LIFE: Final = 60.0
KILL_SECONDS: Final = 5.0
"""What was told to end at once has so long."""

SPARE_SECONDS: Final = 10.0
"""Beyond notice and grace, before a process that does not end is killed."""

LAST_PORT: Final = 65_535


def run_processes(config: GatewayConfig, count: int) -> None:
    """Serve with `count` processes until SIGTERM or SIGINT; a second signal stops at once.

    Raises:
        CommandError: a port cannot be had, there is no Redis, or a process could not start or end.
        SystemExit: 128 + n, a second signal n stopped them.
    """
    with hold_port(config.host, config.port) as port:
        configs = shared_out(replace(config, port=port), count)
        asyncio.run(_run(configs, config.notice_seconds + config.grace_seconds + SPARE_SECONDS))


def shared_out(config: GatewayConfig, count: int) -> list[GatewayConfig]:
    """What each of `count` processes is to run: all on one port, with metrics on the next ones.

    Raises:
        CommandError: there are not enough ports for metrics.
    """
    first = config.metrics_port
    last = first + count - 1 if first else 0
    if first and last > LAST_PORT:
        raise CommandError(
            f"--metrics-port {first} with --processes {count}: each process has a metrics port, "
            f"and the last would be {last}; take {LAST_PORT - count + 1} or a lower one",
            ExitCode.USAGE,
        )
    if first and first <= config.port <= last:
        raise CommandError(
            f"--metrics-port {first} with --processes {count}: each process has a metrics port, "
            f"{first} to {last}, and {config.port} is where they serve gRPC (--port)",
            ExitCode.USAGE,
        )
    return [
        replace(config, share_port=True, metrics_port=first + index if first else first)
        for index in range(count)
    ]


async def _run(configs: Sequence[GatewayConfig], patience: float) -> None:
    signals = StopSignals()
    async with AsyncExitStack() as stack:
        url = configs[0].redis_url
        if url is None:
            try:
                url = await stack.enter_async_context(embedded_server())
            except RedisSetupError as error:
                raise CommandError(str(error)) from error
        inputs = [
            pickle.dumps((f"process {number}", replace(config, redis_url=url)))
            for number, config in enumerate(configs, 1)
        ]
        address = f"{configs[0].host}:{configs[0].port}"
        processes = await stack.enter_async_context(Processes(COMMAND, inputs, address))
        running = asyncio.create_task(processes.run())
        stop = asyncio.create_task(signals.wait())
        await asyncio.wait({running, stop}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        logger.info("gateway is stopping")
        running.cancel()
        await asyncio.wait([running])
        await signals.unless_repeated(processes.stop(patience))


class Pauses:
    """Before each start of a process: longer each time, unless it lived long."""

    def __init__(self) -> None:
        self._last = 0.0

    def after(self, lived: float) -> float:
        """Seconds to wait with another start after a life of `lived` seconds."""
        short = self._last and lived < LONG_LIFE
        self._last = min(2 * self._last, LONGEST_PAUSE) if short else FIRST_PAUSE
        return self._last


class Processes:
    """A context that ends all processes.

    Args:
        command: that each runs.
        inputs: what each is given on its stdin; it writes a line to stdout when it serves.
        address: where they serve, for the log.
    """

    def __init__(self, command: Sequence[str], inputs: Sequence[bytes], address: str) -> None:
        self._command = command
        self._inputs = inputs
        self._address = address
        self._living: dict[int, Process] = {}
        self._unready = len(inputs)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._signal(signal.SIGTERM)
        await self._gone(KILL_SECONDS)

    def pids(self) -> list[int]:
        """Of those that live, by number."""
        return [process.pid for _, process in sorted(self._living.items())]

    async def run(self) -> None:
        """Start all, and each again when it has ended, until cancelled.

        Raises:
            CommandError: one has ended before it has ever served.
        """
        try:
            async with asyncio.TaskGroup() as keepers:
                for number in range(1, len(self._inputs) + 1):
                    keepers.create_task(self._keep(number))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def stop(self, patience: float) -> None:
        """Let all end, once `run` was cancelled, and kill those that take more than so long.

        Raises:
            CommandError: one has not ended well.
        """
        self._signal(signal.SIGTERM)
        await self._gone(patience)
        for number, process in self._living.items():
            code = process.returncode
            # NOTE: it is killed by SIGTERM that was not so far as to take signals.
            if code and code != -signal.SIGTERM:
                raise CommandError(f"{_name(number, process)} {ending(code)} when it was to stop")

    async def _keep(self, number: int) -> None:
        loop, pauses, served = asyncio.get_running_loop(), Pauses(), False
        while True:
            began = loop.time()
            process = await self._start(number)
            assert process.stdout
            if line := await process.stdout.readline():
                self._ready(number, process, line.decode().strip(), again=served)
                served = True
            code = await process.wait()
            del self._living[number]
            what = f"{_name(number, process)} {ending(code)}"
            if not served:
                raise CommandError(f"{what} before it could serve; its log above says why")
            pause = pauses.after(loop.time() - began)
            logger.error("%s; another starts in %g s", what, pause)
            await asyncio.sleep(pause)

    async def _start(self, number: int) -> Process:
        # NOTE: its own session, so that Ctrl-C at the terminal reaches the parent alone.
        process = await asyncio.create_subprocess_exec(
            *leashed(*self._command), stdin=PIPE, stdout=PIPE, start_new_session=True
        )
        self._living[number] = process
        assert process.stdin
        with suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(self._inputs[number - 1])
            await process.stdin.drain()
        process.stdin.close()
        return process

    def _ready(self, number: int, process: Process, metrics: str, *, again: bool) -> None:
        where = f", metrics on port {metrics}" if metrics else ""
        logger.info("%s serves%s", _name(number, process), where)
        self._unready -= not again
        if not self._unready and not again:
            logger.info("gateway ready on %s with %d processes", self._address, len(self._inputs))

    def _signal(self, number: signal.Signals) -> None:
        for process in self._living.values():
            with suppress(ProcessLookupError):
                process.send_signal(number)

    async def _gone(self, seconds: float) -> None:
        """Wait until all have ended; those that take longer are killed."""
        try:
            async with asyncio.timeout(seconds):
                await self._all_ended()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self._all_ended()

    async def _all_ended(self) -> None:
        await asyncio.gather(*(process.wait() for process in self._living.values()))


def _name(number: int, process: Process) -> str:
    return f"process {number} (pid {process.pid})"
