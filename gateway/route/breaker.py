"""Circuit breaking: a worker that fails again and again is left alone for a while, then probed.

Three failures in a row open its circuit. After a pause, longer each time, one request probes it: if
that fails too the next pause begins, and with its first tokens the circuit closes. Then one failure
more opens it again, until a request has ended well. Pure: seconds of any one clock that does not go
back, and the randomness that keeps gateways from probing in step, are passed in.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.fleet.worker import FleetWorker, Life

THRESHOLD: Final = 3
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0
MEMORY: Final = 10 * LONGEST_PAUSE
"""Seconds after its last failure in which a worker is forgotten."""


@dataclass(slots=True)
class _Circuit:
    """Of a worker that failed last at `failed_at`, for `reason`, the `failures`-th time in a row.

    While `open`, it is probed from `probe_at` on; `pause` is the last one, before its jitter;
    `probing`, a probe is under way.
    """

    failures: int = 0
    reason: str = ""
    failed_at: float = 0.0
    open: bool = False
    pause: float = 0.0
    probe_at: float = 0.0
    probing: bool = False

    def wait(self, now: float, jitter: float) -> None:
        """Let the next probe wait for `pause`, at the shortest for half of it."""
        self.probe_at = now + self.pause * (1 + jitter) / 2

    def widen(self) -> None:
        """Make the pause longer."""
        self.pause = min(2 * self.pause or FIRST_PAUSE, LONGEST_PAUSE)


class Breakers:
    """The circuits of all workers.

    Args: `jitter()`, a random number in [0, 1): pauses are between half and all of their length.
    """

    def __init__(self, jitter: Callable[[], float]) -> None:
        self._jitter = jitter
        self._circuits: dict[Life, _Circuit] = {}

    def __len__(self) -> int:
        """How many workers have failed lately, whether their circuits are open or not."""
        return len(self._circuits)

    def allowed(self, workers: list[FleetWorker], now: float) -> list[FleetWorker]:
        """Those that a request may be sent to, in the same order.

        None only of none: if all circuits are open, the one that failed longest ago is tried.
        """
        if not self._circuits:
            return workers
        allowed = [worker for worker in workers if self._allows(worker.life, now)]
        if allowed or not workers:
            return allowed
        return [min(workers, key=lambda worker: self._circuits[worker.life].failed_at)]

    def sent(self, life: Life, now: float) -> None:
        """A request goes there: if it is a probe, the next waits for its end, or for a pause."""
        circuit = self._circuits.get(life)
        if circuit and circuit.open and now >= circuit.probe_at:
            circuit.probing = True
            circuit.wait(now, self._jitter())

    def answered(self, life: Life) -> None:
        """The first tokens of a request came."""
        circuit = self._circuits.get(life)
        if circuit and circuit.open:
            circuit.open = circuit.probing = False
            circuit.failures = THRESHOLD - 1

    def succeeded(self, life: Life) -> None:
        """A request ended well."""
        self._circuits.pop(life, None)

    def failed(self, life: Life, reason: str, now: float) -> bool:
        """A request failed through no fault of its own; whether that opened the circuit."""
        self._forget(now)
        circuit = self._circuits.setdefault(life, _Circuit())
        circuit.failures += 1
        circuit.reason, circuit.failed_at = reason, now
        opens = not circuit.open and circuit.failures >= THRESHOLD
        # NOTE: what else fails while it is open was under way before, and says nothing new.
        if opens or circuit.probing:
            circuit.open, circuit.probing = True, False
            circuit.widen()
            circuit.wait(now, self._jitter())
        return opens

    def reason(self, life: Life, now: float) -> str:
        """Why requests are kept away from it; empty when they are not."""
        circuit = self._circuits.get(life)
        if circuit is None or not circuit.open:
            return ""
        wait = max(0.0, circuit.probe_at - now)
        return (
            f"failed {circuit.failures} times in a row, the last {now - circuit.failed_at:.1f} s "
            f"ago ({circuit.reason}); probed in {wait:.1f} s"
        )

    def _allows(self, life: Life, now: float) -> bool:
        circuit = self._circuits.get(life)
        return circuit is None or not circuit.open or now >= circuit.probe_at

    def _forget(self, now: float) -> None:
        old = [life for life, circuit in self._circuits.items() if now - circuit.failed_at > MEMORY]
        for life in old:
            del self._circuits[life]
