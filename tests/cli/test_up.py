"""`radixgate up` with a tiny model: it serves, and whatever ends it, nothing stays behind."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from radixgate.client import Client
from radixgate.home import radixgate_home

from tests.e2e.processes import free_port, wait_until

pytestmark = pytest.mark.slow

Up = Callable[..., "Fleet"]

# Kernels are not compiled anew for each test.
KERNELS = radixgate_home() / "kernels"


class Fleet:
    """A running `radixgate up` with two workers."""

    def __init__(self, model: Path, home: Path, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        self.said = home / "up.log"
        options = f"up --model {model} --port {port} --workers 2 --threads 1 --kv-memory 8MiB "
        options += "--device cpu"
        with self.said.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cli.main", *options.split()],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "RADIXGATE_HOME": str(home), "NUMBA_CACHE_DIR": str(KERNELS)},
                start_new_session=True,
            )
        self.parts: list[psutil.Process] = []

    def wait_ready(self) -> None:
        """Wait for the invitation; note all processes of the fleet."""

        def ready() -> bool:
            assert self.process.poll() is None, self.said.read_text()
            return "ready after" in self.said.read_text()

        wait_until(ready, 90, "up is ready")
        self.parts = psutil.Process(self.process.pid).children(recursive=True)
        # Gateway, its Redis, two workers.
        assert len(self.parts) == 4

    def part(self, name: str) -> psutil.Process:
        return next(part for part in self.parts if name in part.cmdline())

    def assert_gone(self) -> None:
        _, alive = psutil.wait_procs(self.parts, timeout=20)
        assert not [part for part in alive if part.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture
def up(tiny_llama: Path, tmp_path: Path) -> Iterator[Up]:
    fleets: list[Fleet] = []

    def up(port: int = 0) -> Fleet:
        fleets.append(Fleet(tiny_llama, tmp_path, port or free_port()))
        return fleets[-1]

    yield up
    for fleet in fleets:
        fleet.process.kill()
        fleet.process.wait()
        fleet.assert_gone()


def test_it_serves_until_ctrl_c(up: Up) -> None:
    fleet = up()
    fleet.wait_ready()
    with Client(fleet.address) as client:
        assert {worker.worker for worker in client.workers()} == {"worker-0", "worker-1"}
        assert len(client.generate("Hello", max_tokens=4, ignore_eos=True).result().ids) == 4
    fleet.process.send_signal(signal.SIGINT)
    assert fleet.process.wait(30) == 0
    fleet.assert_gone()
    assert "error" not in fleet.said.read_text()


def test_a_part_that_dies_ends_the_rest(up: Up) -> None:
    fleet = up()
    fleet.wait_ready()
    fleet.part("worker-1").kill()
    assert fleet.process.wait(30) == 1
    fleet.assert_gone()
    said = fleet.said.read_text()
    assert "error: worker-1 was killed by SIGKILL; its last lines:" in said
    assert "worker ready on" in said


def test_killed_itself_it_leaves_nothing_behind(up: Up) -> None:
    fleet = up()
    fleet.wait_ready()
    fleet.process.kill()
    fleet.process.wait()
    fleet.assert_gone()


def test_a_port_that_is_taken(up: Up) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        fleet = up(port)
        assert fleet.process.wait(60) == 1
    assert f"cannot listen on 127.0.0.1:{port}" in fleet.said.read_text()
