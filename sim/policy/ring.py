"""Consistent hashing: each key belongs to a worker, and few keys move when workers come and go."""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

import xxhash

POINTS: Final = 150
"""Places of each worker on the ring."""


class HashRing:
    """Args: `workers`, ids; at least one. `points` of each on the ring.

    Raises:
        ValueError: there is no worker.
    """

    def __init__(self, workers: Iterable[str], points: int = POINTS) -> None:
        ring = sorted(
            (xxhash.xxh3_64_intdigest(f"{worker}#{point}".encode()), worker)
            for worker in workers
            for point in range(points)
        )
        if not ring:
            raise ValueError("a hash ring needs at least one worker; it got none")
        self._points = [point for point, _ in ring]
        self._workers = [worker for _, worker in ring]

    def worker(self, key: int) -> str:
        """To whom the 64-bit `key` belongs: who has the next point from there on."""
        at = bisect_left(self._points, key)
        return self._workers[at % len(self._workers)]
