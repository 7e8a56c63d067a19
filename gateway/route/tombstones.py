"""Boundaries that were evicted lately: what tells an evicted prompt from one that was never seen.

Pure, and bounded in memory.
"""

from collections.abc import Collection, Sequence
from itertools import takewhile

from radixgate.prefix import PrefixHash


class Tombstones:
    """Remembers between `generation` and twice as many evictions, and what comes with the last.

    Two generations of sets: when the younger is full the older is dropped as a whole. Caches evict
    the ends of prompts first, so what is dropped shortens runs and makes no holes in them.
    """

    def __init__(self, generation: int) -> None:
        self._generation = generation
        self._young: set[PrefixHash] = set()
        self._old: set[PrefixHash] = set()

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def __contains__(self, name: PrefixHash) -> bool:
        return name in self._young or name in self._old

    def evicted(self, hashes: Collection[PrefixHash]) -> None:
        """Nobody holds `hashes` any longer: the last who did needed the room."""
        if len(self._young) >= self._generation:
            self._young, self._old = set(), self._young
        self._young.update(hashes)

    def stored(self, hashes: Collection[PrefixHash]) -> None:
        """`hashes` are held again, and if they are lost the next time, it may be otherwise."""
        self._young.difference_update(hashes)
        self._old.difference_update(hashes)

    def run(self, boundaries: Sequence[PrefixHash], start: int) -> int:
        """How many of `boundaries`, from the one at `start` on, were evicted without a gap."""
        return sum(1 for _ in takewhile(self.__contains__, boundaries[start:]))
