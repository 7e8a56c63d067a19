"""Ctrl-C at any moment of a call: it ends that call, and the next one is answered."""

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import pytest
from radixgate.client import AsyncClient
from radixgate.request import Options

from cli.chat import Conversation
from tests.contract.gateway_double import GatewayDouble, Hang, answer

TURNS = 150


@pytest.fixture
def interrupt_after() -> Iterator[partial[object]]:
    """Arms a Ctrl-C that comes after so many seconds; 0 disarms it."""
    before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    yield partial(signal.setitimer, signal.ITIMER_REAL)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
def test_the_turn_after_a_ctrl_c_is_answered_whenever_it_comes(
    gateway: GatewayDouble, interrupt_after: partial[object]
) -> None:
    async def connect() -> AsyncClient:
        return AsyncClient(gateway.address)

    words = ["word"] * 60
    gateway.script = list(answer(*words))
    moments = random.Random(1)
    outcomes = set()
    with asyncio.Runner() as runner:
        client = runner.run(connect())
        for _ in range(TURNS):
            stopped = Conversation(client, None, Options())
            try:
                interrupt_after(moments.uniform(0.0005, 0.03))
                outcomes.add(runner.run(stopped.ask("one")) == "stopped")
            except KeyboardInterrupt:
                outcomes.add(True)
            finally:
                interrupt_after(0)
            conversation = Conversation(client, None, Options())
            runner.run(conversation.ask("two"))
            assert conversation.messages[-1]["content"] == "".join(words)
        runner.run(client.close())
    assert outcomes == {True, False}, "the interrupts came all too late, or all too early"


@pytest.mark.slow
@pytest.mark.parametrize("command", [["generate", "hi"], ["generate", "hi", "--json"]])
def test_a_command_ends_at_ctrl_c_and_cancels_its_request(
    gateway: GatewayDouble, command: list[str]
) -> None:
    gateway.script = [*list(answer("half"))[:2], Hang()]
    process = subprocess.Popen(
        [sys.executable, "-m", "cli.main", *command, "--gateway", gateway.address],
        stdout=subprocess.PIPE,
    )
    try:
        assert gateway.asked.wait(20)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert gateway.cancelled.wait(20)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_prompt_that_is_not_text_is_refused_without_a_traceback(gateway: GatewayDouble) -> None:
    for command in ["generate", "-"], ["chat"]:
        ended = subprocess.run(
            [sys.executable, "-m", "cli.main", *command, "--gateway", gateway.address],
            input=b"\xff\n",
            capture_output=True,
            env={"PYTHONUTF8": "0", "LC_ALL": "C.UTF-8"},
            timeout=20,
            check=False,
        )
        assert b"surrogates not allowed" in ended.stderr
        assert b"Traceback" not in ended.stderr
        assert ended.returncode == (2 if "generate" in command else 0)
