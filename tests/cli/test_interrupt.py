"""Ctrl-C at any moment of a call: it ends that call, and the next one is answered."""

import asyncio
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from radixgate.client import AsyncClient
from radixgate.request import Options

from cli.calls import run
from cli.chat import Conversation
from tests.contract.gateway_double import GatewayDouble, Hang, answer

TURNS = 150


@pytest.fixture
def interrupt() -> Iterator[Callable[[], None]]:
    """Sends Ctrl-C to the main thread, where it is ignored unless a call is running."""
    ident = threading.main_thread().ident
    assert ident
    before = signal.signal(signal.SIGINT, lambda *_: None)
    yield partial(signal.pthread_kill, ident, signal.SIGINT)
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_the_turn_after_a_ctrl_c_is_answered_whenever_it_comes(
    gateway: GatewayDouble, interrupt: Callable[[], None]
) -> None:
    async def connect() -> AsyncClient:
        return AsyncClient(gateway.address)

    words = ["word"] * 60
    gateway.script = list(answer(*words))
    moments = random.Random(1)
    outcomes = set()
    with asyncio.Runner() as runner:
        client = run(runner, connect())
        for _ in range(TURNS):
            timers = [threading.Timer(moments.uniform(0, 0.03), interrupt) for _ in range(2)]
            for timer in timers:
                timer.start()
            try:
                outcomes.add(run(runner, Conversation(client, None, Options()).ask("one")))
            except KeyboardInterrupt:
                outcomes.add("cancelled before or after the stream")
            for timer in timers:
                timer.join()
            conversation = Conversation(client, None, Options())
            run(runner, conversation.ask("two"))
            assert conversation.messages[-1]["content"] == "".join(words)
        run(runner, client.close())
    assert "stopped" in outcomes
    assert len(outcomes) > 1, "all came in the middle, none at the ends"


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
