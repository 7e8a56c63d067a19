"""The threads that compute together."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

# NOTE: more than anyone asks for. Work that waits for all of its threads would wait for ever if
# there were fewer; a thread is made only when it is needed.
_MOST = 4096

_helpers = ThreadPoolExecutor(_MOST, "kernels")


def together(threads: int, work: Callable[..., None], *arguments: Any) -> None:
    """Do `work(*arguments)` in this thread and in `threads` - 1 others; returns when all have.

    Raises whatever `work` raises.
    """
    helpers = [_helpers.submit(work, *arguments) for _ in range(threads - 1)]
    work(*arguments)
    for helper in helpers:
        helper.result()
