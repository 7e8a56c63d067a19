"""`radixgate simulate --calibrate`: a live worker is measured, so that it can be simulated."""

from pathlib import Path

from cli.exits import CommandError, ExitCode
from cli.extras import needs
from cli.output import answers, notes


def measure(
    address: str,
    out: Path | None,
    *,
    gateway: str | None,
    max_running: int | None,
    token_budget: int | None,
    chunk_ms: float | None,
    eviction: str | None,
) -> None:
    """Measure the worker at `address`, and the way through its `gateway`, into the file `out`.

    The others are what the worker was started with, as far as that is not the default.
    """
    with needs("sim"):
        from sim.hardware.calibrate import WORKER_LIMITS, CalibrationError, Limits, calibrate
        from sim.hardware.setup_file import write_setup
    if out is None:
        raise CommandError("say with --out where the measured worker goes", ExitCode.USAGE)
    known = WORKER_LIMITS
    limits = Limits(
        max_running=max_running or known.max_running,
        token_budget=token_budget or known.token_budget,
        chunk_seconds=known.chunk_seconds if chunk_ms is None else chunk_ms / 1000,
        eviction=eviction or known.eviction,
    )
    try:
        found = calibrate(
            address, limits, lambda line: notes.print(line, markup=False), gateway=gateway
        )
        write_setup(out, found.setup, found.notes())
    except (CalibrationError, OSError) as error:
        raise CommandError(str(error)) from error
    fit = found.fit
    answers.print(
        f"wrote {out}: {found.setup.name}; the formula is off by {fit.typical_error:.0%} "
        f"typically, and by {fit.worst_error:.0%} at most",
        markup=False,
    )
