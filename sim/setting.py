"""How a trace is played: on what workers, by what clients."""

from dataclasses import dataclass

from sim.hardware.setup import WorkerSetup


@dataclass(frozen=True, slots=True)
class Setting:
    """Args:
    setup: of every worker.
    workers: how many there are.
    stride: tokens from one boundary to the next.
    seed: of all that is left to chance.
    closed_loop: keep so many requests under way, whatever their times; None follows the times.
    service_seconds: each request takes so long, whatever it is; None asks the setup.
    """

    setup: WorkerSetup
    workers: int
    stride: int
    seed: int = 0
    closed_loop: int | None = None
    service_seconds: float | None = None
