"""The digest of a set of prefix hashes: how many there are, and all of them xor-ed.

Order does not matter and one change costs one operation, so both ends of `KvSync` keep it current.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import reduce
from operator import xor


@dataclass(frozen=True, slots=True)
class SetDigest:
    """Args: `count` of hashes in the set; `xor` of all of them, 0 for the empty set."""

    count: int = 0
    xor: int = 0

    @classmethod
    def of(cls, hashes: Iterable[int]) -> "SetDigest":
        """The digest of a set given as distinct hashes."""
        distinct = list(hashes)
        return cls(len(distinct), reduce(xor, distinct, 0))

    def changed(self, added: Collection[int], removed: Collection[int]) -> "SetDigest":
        """The digest after hashes not in the set were `added` and hashes in it `removed`."""
        xored = reduce(xor, removed, reduce(xor, added, self.xor))
        return SetDigest(self.count + len(added) - len(removed), xored)
