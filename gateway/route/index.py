"""Which workers hold which prefixes: one bit mask of workers per prefix hash.

Held sets are prefix-closed: who holds a boundary holds all shorter ones. So the masks along a
prompt only lose bits, and the longest match of every worker is found with one probe per doubling of
the length and one bisection per change of the mask. Pure: fed by whoever follows the summaries.
"""

from collections.abc import Iterable, Iterator, Sequence

from radixgate.prefix import PrefixHash


class PrefixIndex:
    """Boundaries by worker too, so that a departure costs only what that worker held."""

    def __init__(self) -> None:
        self._masks: dict[PrefixHash, int] = {}
        self._held: dict[str, set[PrefixHash]] = {}
        self._slots: dict[str, int] = {}
        self._workers: dict[int, str] = {}

    def __len__(self) -> int:
        """How many different boundaries are held by anyone."""
        return len(self._masks)

    def stored(self, worker: str, hashes: Iterable[PrefixHash]) -> None:
        """`worker` holds `hashes` from now on."""
        bit = 1 << self._slot(worker)
        held = self._held[worker]
        for name in hashes:
            held.add(name)
            self._masks[name] = self._masks.get(name, 0) | bit

    def removed(self, worker: str, hashes: Iterable[PrefixHash]) -> None:
        """`worker` holds `hashes` no longer; those it did not hold are ignored."""
        held = self._held.get(worker, set())
        for name in held.intersection(hashes):
            held.discard(name)
            mask = self._masks[name] & ~(1 << self._slots[worker])
            if mask:
                self._masks[name] = mask
            else:
                del self._masks[name]

    def forgotten(self, worker: str) -> None:
        """`worker` holds nothing any more, and nothing is kept of it."""
        if worker in self._slots:
            self.removed(worker, self._held[worker])
            del self._held[worker]
            del self._workers[self._slots.pop(worker)]

    def match(self, boundaries: Sequence[PrefixHash]) -> dict[str, int]:
        """How many of a prompt's `boundaries`, shortest first, each worker holds.

        Workers that hold none are left out. O(log n) probes for each different match length.
        """
        matched: dict[str, int] = {}

        def mask_at(count: int) -> int:
            return self._masks.get(boundaries[count - 1], 0) if count <= len(boundaries) else 0

        def settle(low: int, low_mask: int, high: int, high_mask: int) -> None:
            """Workers that hold `low` boundaries but not `high` get their match."""
            if low_mask == high_mask:
                return
            if high == low + 1:
                matched.update(dict.fromkeys(self._named(low_mask & ~high_mask), low))
                return
            middle = (low + high) // 2
            mask = mask_at(middle) & low_mask
            settle(low, low_mask, middle, mask)
            settle(middle, mask, high, high_mask & mask)

        low, low_mask = 1, mask_at(1)
        while low_mask:
            high = min(2 * low, len(boundaries) + 1)
            high_mask = mask_at(high) & low_mask
            settle(low, low_mask, high, high_mask)
            low, low_mask = high, high_mask
        return matched

    def _slot(self, worker: str) -> int:
        if worker not in self._slots:
            slot = next(free for free in range(len(self._workers) + 1) if free not in self._workers)
            self._slots[worker] = slot
            self._held[worker] = set()
            self._workers[slot] = worker
        return self._slots[worker]

    def _named(self, mask: int) -> Iterator[str]:
        while mask:
            lowest = mask & -mask
            yield self._workers[lowest.bit_length() - 1]
            mask ^= lowest
