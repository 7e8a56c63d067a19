"""`radixgate up`: a whole fleet on this machine, from nothing to the first answer."""

import os
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from radixgate.client import DEFAULT_ADDRESS
from radixgate.errors import RadixgateError
from radixgate.home import radixgate_home
from radixgate.v1.gateway_pb2 import Trust

from cli import options
from cli.calls import call
from cli.model import pull
from cli.output import notes
from cli.supervisor import Part, Supervisor
from worker.model.pull import DEFAULT_MODEL
from worker.model.weights import WeightFormat

READY_SECONDS = 120.0
GRACE_SECONDS = 10.0
HOST = "127.0.0.1"

Workers = Annotated[int, typer.Option(min=1, help="How many workers.")]
ModelRef = Annotated[
    str, typer.Option("--model", metavar="REF", help="What to serve; pulled when it is not here.")
]
Port = Annotated[int, typer.Option(min=1, max=65535, help="Where the gateway listens.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Threads of each worker; by default all CPUs, shared out.")
]


def up(
    *,
    workers: Workers = 2,
    model: ModelRef = DEFAULT_MODEL,
    port: Port = 50051,
    redis: options.Redis = None,
    device: options.Device = "auto",
    weights: options.Weights = WeightFormat.FLOAT32,
    kv_format: options.KvFormat = "none",
    kv_format_layers: options.KvFormatLayers = "",
    kv_memory: options.KvMemory = 512 * 2**20,
    threads: Threads = None,
) -> None:
    """Run a gateway, its Redis and workers here, until Ctrl-C or until one of them ends."""
    begin = time.monotonic()
    directory = pull(model)
    logs = radixgate_home() / "logs" / f"up-{port}"
    notes.print(f"\n[bold]radixgate up[/] · {directory.name} · logs in {_short(logs)}\n")
    address = f"{HOST}:{port}"
    threads = threads or max(1, _cpus() // workers)
    # NOTE: other fleets may report to the same Redis, where equal names would fence each other.
    origin = f"@{socket.gethostname()}:{port}" if redis else ""
    ids = [f"worker-{index}{origin}" for index in range(workers)]
    worker_options = _given(
        model=str(directory),
        gateway=address,
        threads=threads,
        device=device,
        weights=weights.value,
        kv_format=kv_format,
        kv_format_layers=kv_format_layers or None,
        kv_memory=kv_memory,
        grace=GRACE_SECONDS,
    )
    with Supervisor(logs) as fleet:
        try:
            gateway = fleet.start(
                "gateway", "gateway", *_given(port=port, redis=redis, grace=GRACE_SECONDS)
            )
            _await(fleet, gateway)
            _say("redis", redis or "inside the gateway", "")
            parts = [
                fleet.start(f"worker-{index}", "worker", *worker_options, *_given(worker_id=name))
                for index, name in enumerate(ids)
            ]
            for part in parts:
                _await(fleet, part)
            _await_workers(fleet, address, ids)
            _invite(address, time.monotonic() - begin)
            fleet.watch()
        except KeyboardInterrupt:
            notes.print("\nstopping")


def _await(fleet: Supervisor, part: Part) -> None:
    """Wait until a part serves, and say where."""
    kind = part.name.partition("-")[0]
    with notes.status(f"{part.name} starts"):
        address = fleet.wait_for_line(part, rf"{kind} ready on (\S+)", READY_SECONDS)
    _say(part.name, address, part.log.name)


def _await_workers(fleet: Supervisor, address: str, ids: list[str]) -> None:
    """Wait until the gateway routes to all workers."""

    def all_live() -> bool:
        try:
            found = call(address, lambda client: client.workers(timeout=5))
        except RadixgateError:
            return False
        live = {worker.worker for worker in found if worker.trust == Trust.TRUST_LIVE}
        return live >= set(ids)

    with notes.status("the workers register"):
        fleet.wait_until(
            all_live, READY_SECONDS, lambda: "the gateway does not take all workers; see their logs"
        )


def _say(name: str, address: str, log: str) -> None:
    notes.print(f"  [green]●[/] {name:<10} {address:<22} [dim]{log}[/]")


def _invite(address: str, seconds: float) -> None:
    elsewhere = "" if address == DEFAULT_ADDRESS else f" --gateway {address}"
    notes.print(
        f"\nready after {seconds:.1f} s. Try in another terminal:\n\n"
        f"  [bold]{_command()} chat{elsewhere}[/]\n"
        f"  [bold]{_command()} workers{elsewhere}[/]\n\n"
        "Ctrl-C stops everything."
    )


def _cpus() -> int:
    """CPUs that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _command() -> str:
    """How another terminal here can run this program."""
    if shutil.which("radixgate"):
        return "radixgate"
    path = Path(sys.executable).with_name("radixgate")
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _given(**values: object) -> list[str]:
    """Options of a command line, those with a value."""
    pairs = ((f"--{name.replace('_', '-')}", value) for name, value in values.items())
    return [word for name, value in pairs if value is not None for word in (name, str(value))]


def _short(path: Path) -> str:
    """A path with `~` for the home directory."""
    return f"~/{path.relative_to(Path.home())}" if path.is_relative_to(Path.home()) else str(path)
