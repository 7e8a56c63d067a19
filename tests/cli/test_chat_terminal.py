"""Chat at a real terminal: Ctrl-C stops an answer, not the conversation."""

import os
import pty
import select
import signal
import sys
import time
from collections.abc import Iterator

import pytest
from radixgate.v1.generate_pb2 import GenerateResponse, Tokens

from tests.contract.gateway_double import GatewayDouble, Hang, answer


class Terminal:
    """A `radixgate chat` behind a pseudo-terminal."""

    def __init__(self, address: str) -> None:
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            command = [sys.executable, "-m", "cli.main", "chat", "--gateway", address]
            os.execv(command[0], command)
        self._read = ""

    def expect(self, text: str) -> None:
        """Wait until `text` has been shown since the text that was expected last."""
        deadline = time.monotonic() + 20
        while text not in self._read:
            assert time.monotonic() < deadline, f"no {text!r} in {self._read!r}"
            if select.select([self._fd], [], [], 0.1)[0]:
                self._read += os.read(self._fd, 4096).decode(errors="replace")
        self._read = self._read.partition(text)[2]

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def wait(self) -> int:
        """The exit code, once it has ended."""
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            self.wait()
        os.close(self._fd)


@pytest.fixture
def terminal(gateway: GatewayDouble) -> Iterator[Terminal]:
    terminal = Terminal(gateway.address)
    yield terminal
    terminal.close()


@pytest.mark.slow
def test_ctrl_c_stops_the_answer_and_keeps_what_came(
    terminal: Terminal, gateway: GatewayDouble
) -> None:
    terminal.expect("/exit or Ctrl-D leaves")
    terminal.expect("> ")
    gateway.script = [
        *list(answer("half"))[:1],
        GenerateResponse(tokens=Tokens(ids=[1], text="half an")),
        Hang(),
    ]
    terminal.type("one\n")
    terminal.expect("half an")
    terminal.type("\x03")
    terminal.expect("stopped")
    assert gateway.cancelled.wait(10)
    terminal.expect("> ")
    gateway.script = list(answer("whole"))
    terminal.type("two\n")
    terminal.expect("whole")
    terminal.expect("1 token ·")
    said = [message.content for message in gateway.requests[-1].messages]
    assert said == ["one", "half an", "two"]
    terminal.expect("> ")
    terminal.type("\x04")
    assert terminal.wait() == 0
