"""The state of all workers at even distances of time, however long a run takes."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from sim.results import Samples

ENOUGH: Final = 300
"""Of a run there are so many samples to twice as many, unless it is shorter than they take."""

FIRST_DISTANCE: Final = 0.01
"""Seconds from one sample to the next, until there are too many."""


class State(NamedTuple):
    """Of a worker: sequences that run, and that wait; blocks that are not free."""

    running: int
    waiting: int
    used_blocks: int


class Sampling:
    """Args: how many `workers` there are.

    Attributes: `distance`, seconds from the last sample to the next.
    """

    def __init__(self, workers: int) -> None:
        self.distance = FIRST_DISTANCE
        self._workers = workers
        self._taken: list[tuple[float, int, Sequence[State]]] = []

    def take(self, now: float, queued: int, workers: Sequence[State]) -> None:
        """A sample, at virtual second `now`; `queued` requests wait in the gateway."""
        self._taken.append((now, queued, workers))
        if len(self._taken) > 2 * ENOUGH:
            del self._taken[1::2]
            self.distance *= 2

    def samples(self) -> Samples:
        """All that are left."""
        states = np.array([workers for _, _, workers in self._taken], np.int64)
        states = states.reshape(len(self._taken), self._workers, len(State._fields))
        return Samples(
            at=np.array([at for at, _, _ in self._taken], float),
            running=states[:, :, 0],
            waiting=states[:, :, 1],
            used_blocks=states[:, :, 2],
            queued=np.array([queued for _, queued, _ in self._taken], np.int64),
        )
