"""How this process waits for its own threads. Call before torch is imported."""

import os


def share_cores() -> None:
    """Let idle OpenMP threads sleep, not spin, unless the environment says how they wait.

    A thread that spins takes its core from another process, such as a second worker, whose threads
    then make their own siblings wait: two workers on two cores get many times slower than one.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
