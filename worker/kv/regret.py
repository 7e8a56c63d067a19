"""Regret: what evictions have cost so far, in tokens that had to be computed again."""

from collections.abc import Iterable
from itertools import islice

from radixgate.prefix import PrefixHash


class Regret:
    """Remembers the last evicted boundaries and counts those that come back.

    Args:
        capacity: boundaries remembered; the oldest are forgotten first, so regret is a lower bound.
        stride: tokens from one boundary to the next.

    Attributes:
        evicted_blocks: blocks evicted to make room, ever.
        recomputed_tokens: tokens computed again after they had been evicted, ever.
    """

    def __init__(self, capacity: int, stride: int) -> None:
        self.evicted_blocks = 0
        self.recomputed_tokens = 0
        self._capacity = capacity
        self._stride = stride
        self._evicted: dict[PrefixHash, None] = {}

    def __contains__(self, name: PrefixHash) -> bool:
        return name in self._evicted

    def evicted(self, hashes: Iterable[PrefixHash], blocks: int) -> None:
        """Eviction took `blocks` blocks, and with them these boundaries."""
        self.evicted_blocks += blocks
        for name in hashes:
            self._evicted.pop(name, None)
            self._evicted[name] = None
        forgotten = len(self._evicted) - self._capacity
        if forgotten > 0:
            for name in list(islice(self._evicted, forgotten)):
                del self._evicted[name]

    def stored(self, hashes: Iterable[PrefixHash]) -> None:
        """These boundaries were computed; those remembered as evicted were computed again."""
        for name in hashes:
            if name in self._evicted:
                del self._evicted[name]
                self.recomputed_tokens += self._stride
