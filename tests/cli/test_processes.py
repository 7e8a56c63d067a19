"""The parent of several processes, with small programs in the place of gateways."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli import processes
from cli.exits import CommandError, ExitCode
from cli.ports import hold_port
from cli.processes import LONG_LIFE, LONGEST_PAUSE, Pauses, Processes, shared_out
from gateway.config import GatewayConfig

SERVES = """
import signal, sys
assert sys.stdin.read() == "input"
signal.signal(signal.SIGTERM, lambda *_: sys.exit({code}))
print(flush=True)
while True:
    signal.pause()
"""


@asynccontextmanager
async def running(program: str, count: int = 2) -> AsyncIterator[tuple[Processes, asyncio.Task]]:
    command = (sys.executable, "-c", program)
    async with Processes(command, [b"input"] * count, "here:1") as group:
        task = asyncio.create_task(group.run())
        yield group, task
        task.cancel()
        await asyncio.wait([task])


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110 (what is awaited is in other processes)
            await asyncio.sleep(0.01)


async def stop(group: Processes, task: asyncio.Task, patience: float = 60) -> None:
    task.cancel()
    await asyncio.wait([task])
    await group.stop(patience)


async def test_one_that_dies_is_replaced_and_named_with_its_exit_code(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    async with running(SERVES.format(code=3)) as (group, _):
        await until(lambda: "gateway ready on here:1 with 2 processes" in caplog.text)
        for number, how in (
            (signal.SIGKILL, "was killed by SIGKILL; another starts in 0.5 s"),
            (signal.SIGTERM, "ended with exit code 3; another starts in 1 s"),
        ):
            before, served = group.pids(), caplog.text.count(" serves")
            os.kill(before[0], number)
            await until(lambda how=how: how in caplog.text)
            await until(lambda served=served: caplog.text.count(" serves") > served)
            after = group.pids()
            assert f"process 1 (pid {before[0]}) {how}" in caplog.text
            assert after[0] != before[0]
            assert after[1] == before[1]
    assert caplog.text.count("gateway ready") == 1


@pytest.mark.parametrize("program", [SERVES.format(code=0), "import time; time.sleep(600)"])
async def test_they_end_when_they_are_told_to_be_they_ready_or_not(program: str) -> None:
    async with running(program) as (group, task):
        await until(lambda: len(group.pids()) == 2)
        pids = group.pids()
        await stop(group, task)
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


async def test_one_that_does_not_end_well_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with running(SERVES.format(code=3)) as (group, task):
        await until(lambda: "gateway ready" in caplog.text)
        with pytest.raises(CommandError, match=r"process 1 \(pid \d+\) ended with exit code 3"):
            await stop(group, task)


async def test_one_that_does_not_end_is_killed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    deaf = SERVES.format(code=0).replace("sys.exit(0)", "None")
    async with running(deaf) as (group, task):
        await until(lambda: "gateway ready" in caplog.text)
        with pytest.raises(CommandError, match="was killed by SIGKILL when it was to stop"):
            await stop(group, task, patience=0.1)


async def test_one_that_cannot_start_ends_all() -> None:
    async with running("import sys; sys.exit(1)") as (_, task):
        with pytest.raises(CommandError, match="ended with exit code 1 before it could serve"):
            await asyncio.wait_for(task, 20)


@given(st.lists(st.floats(0, 2 * LONG_LIFE), min_size=1, max_size=20))
def test_pauses_grow_while_lives_are_short(lives: list[float]) -> None:
    pauses, expected = Pauses(), 0.0
    for at, lived in enumerate(lives):
        expected = processes.FIRST_PAUSE if at == 0 or lived >= LONG_LIFE else expected * 2
        expected = min(expected, LONGEST_PAUSE)
        assert pauses.after(lived) == expected


def test_all_share_the_port_and_metrics_are_on_the_next_ones() -> None:
    each = shared_out(GatewayConfig(port=7, metrics_port=9100), 3)
    assert [config.metrics_port for config in each] == [9100, 9101, 9102]
    assert {config.port for config in each} == {7}
    assert all(config.share_port for config in each)
    for free in (None, 0):
        each = shared_out(GatewayConfig(port=7, metrics_port=free), 2)
        assert [config.metrics_port for config in each] == [free, free]


@pytest.mark.parametrize(
    ("port", "metrics_port", "says"),
    [
        (7, 65_534, "the last would be 65536; take 65533 or a lower one"),
        (9101, 9100, "9100 to 9102, and 9101 is where they serve gRPC"),
    ],
)
def test_metrics_ports_that_there_are_not(port: int, metrics_port: int, says: str) -> None:
    with pytest.raises(CommandError, match=says) as error:
        shared_out(GatewayConfig(port=port, metrics_port=metrics_port), 3)
    assert error.value.code is ExitCode.USAGE


def test_a_port_is_kept_for_those_who_share_it_and_is_not_shared_with_strangers() -> None:
    with hold_port("127.0.0.1", 0) as port:
        with socket.socket() as shared:
            shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            shared.bind(("127.0.0.1", port))
            shared.listen()
            with (
                pytest.raises(CommandError, match=f"cannot listen on 127.0.0.1:{port}"),
                hold_port("127.0.0.1", port),
            ):
                pass
        with socket.socket() as alone, pytest.raises(OSError, match="in use"):
            alone.bind(("127.0.0.1", port))


def test_a_host_that_is_not_here() -> None:
    with (
        pytest.raises(CommandError, match=r"cannot listen on 192\.0\.2\.1:7"),
        hold_port("192.0.2.1", 7),
    ):
        pass
