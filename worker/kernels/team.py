"""The threads that compute together."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

_helpers = ThreadPoolExecutor(os.cpu_count(), "kernels")


def together(threads: int, work: Callable[[], None]) -> None:
    """Do `work` in this thread and in `threads` - 1 others at once; returns when all have.

    Raises whatever `work` raises.
    """
    helpers = [_helpers.submit(work) for _ in range(threads - 1)]
    work()
    for helper in helpers:
        helper.result()
