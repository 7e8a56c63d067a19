"""The fleet of most fault tests: two gateways, and two workers that report to either."""

import json
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.processes import Fleet, Process, free_port, wait_until
from tests.e2e.truth import mirrored

# Short, so that a lost worker is noticed soon.
LEASE = ("--lease-ms", "2000")
# Little enough that the load evicts all the time.
MEMORY = ("--kv-memory", "1MiB")


def vocabulary(model: Path) -> int:
    """How many tokens a model knows."""
    size: int = json.loads((model / "config.json").read_text())["vocab_size"]
    return size


class Pair:
    """Args: the `fleet` they are part of; their `model`; `options` of the gateways.

    Attributes: `gateways` and their `addresses`; `workers`.
    """

    def __init__(self, fleet: Fleet, model: Path, *options: str) -> None:
        ports = [free_port(), free_port()]
        self.addresses = [f"127.0.0.1:{port}" for port in ports]
        self.gateways = [fleet.gateway(port, None, *options) for port in ports]
        self.workers = [fleet.worker(name, model, ports, *MEMORY) for name in ("a", "b")]

    def start(self) -> "Pair":
        """Start all four, and wait until either gateway knows both workers."""
        for parts in (self.gateways, self.workers):
            _start(parts)
        for address in self.addresses:
            wait_until(lambda at=address: len(mirrored(at)) == 2, 20, f"{address} knows both")
        return self


def _start(parts: Sequence[Process]) -> None:
    for part in parts:
        part.launch()
    for part in parts:
        part.wait_ready()
