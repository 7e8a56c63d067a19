"""Threads in compiled code take each share once, and none goes on before all are there."""

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from worker.kernels.sync import take, wait
from worker.kernels.team import together

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

Ints = NDArray[np.int64]


@njit(nogil=True)
def rounds(barrier: Ints, taken: Ints, seen: Ints, threads: int) -> None:
    """In each round each thread counts itself, and after the barrier looks at the count."""
    thread = take(taken, len(taken) - 1)
    for index in range(len(taken) - 1):
        take(taken, index)
        wait(barrier, threads)
        seen[index, thread] = taken[index]


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_all_have_arrived_when_one_goes_on(threads: int) -> None:
    count = 2000
    barrier, taken = np.zeros(2, np.int64), np.zeros(count + 1, np.int64)
    seen = np.zeros((count, threads), np.int64)
    together(threads, rounds, barrier, taken, seen, threads)
    assert (seen == threads).all()


def test_what_one_thread_raises_is_raised() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        together(3, fail)
