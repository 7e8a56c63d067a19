"""Which workers hold which prefixes: one bit mask of workers per prefix hash.

Held sets are prefix-closed: who holds a boundary holds all shorter ones. So the masks along a
prompt only lose bits, and the longest match of every worker is found with one probe per doubling of
the length and one bisection per change of the mask; where changes are dense, a walk is cheaper.

A worker has a slot, its bit in the masks. Forgetting one takes its slot out of use, at once; its
bits are cleaned out later, a bounded number with each change, and then the slot is free again.
Pure: fed by whoever follows the summaries.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Final

from radixgate.prefix import PrefixHash

CLEAN_STEP: Final = 256
"""Bits of forgotten workers that are cleaned out at once, beyond as many as a change has itself."""

WALK: Final = 16
"""Boundaries for each match length among them, up to which a walk is cheaper than bisecting."""


class PrefixIndex:
    """What a worker holds is known by whoever feeds the index, so it is not kept here again.

    Args: `clean_step`, bits of forgotten workers that are cleaned out at once.
    """

    def __init__(self, clean_step: int = CLEAN_STEP) -> None:
        self._clean_step = clean_step
        self._masks: dict[PrefixHash, int] = {}
        self._bits: dict[str, int] = {}
        self._workers: dict[int, str] = {}
        self._slots = 0
        self._live = 0
        self._free: list[int] = []
        self._forgotten: list[tuple[int, dict[PrefixHash, None]]] = []

    def __len__(self) -> int:
        """How many boundaries take memory: those held by anyone, and those yet to clean out."""
        return len(self._masks)

    def stored(self, worker: str, hashes: Collection[PrefixHash]) -> None:
        """`worker`, which held none of `hashes`, holds them from now on."""
        bit = self._bits.get(worker) or self._enter(worker)
        masks = self._masks
        mask_or_alone = masks.setdefault
        # NOTE: boundaries along a prompt mostly have one mask; they share one integer.
        before = after = bit
        for name in hashes:
            mask = mask_or_alone(name, bit)
            if mask is not bit:
                if mask is not before:
                    before, after = mask, mask | bit
                masks[name] = after
        self._clean(self._clean_step + len(hashes))

    def removed(self, worker: str, hashes: Collection[PrefixHash]) -> list[PrefixHash]:
        """`worker` holds `hashes` no longer. Returns those of them that now nobody holds."""
        gone = self._cleared(self._bits.get(worker, 0), hashes)
        self._clean(self._clean_step + len(hashes))
        return gone

    def forgotten(self, worker: str, held: dict[PrefixHash, None]) -> None:
        """`worker` holds nothing any more. Takes the same time, however much it held.

        `held` is all that it held until now; the dict belongs to the index from here on.
        """
        bit = self._bits.pop(worker, 0)
        if bit:
            self._live ^= bit
            del self._workers[bit]
            self._forgotten.append((bit, held))

    def clean(self) -> None:
        """Clean out some more of what forgotten workers have left, when there is time."""
        self._clean(self._clean_step)

    def match(self, boundaries: Sequence[PrefixHash]) -> dict[str, int]:
        """How many of a prompt's `boundaries`, shortest first, each worker holds.

        Workers that hold none are left out. Few different match lengths cost O(log n) probes each.
        """
        return self._match(boundaries, 0, self._live)

    def match_beyond(
        self, boundaries: Sequence[PrefixHash], held: Mapping[str, int]
    ) -> dict[str, int]:
        """The same where workers hold more than the index says: `held`, as `match` gives it.

        A worker holds the boundaries that it holds by the index alone, if they come next.
        """
        matched = dict(held)
        starts: dict[int, int] = {}
        others = self._live
        for worker, start in held.items():
            bit = self._bits.get(worker, 0)
            starts[start] = starts.get(start, 0) | bit
            others &= ~bit
        starts[0] = others
        for start, mask in starts.items():
            if mask:
                matched.update(self._match(boundaries, start, mask))
        return matched

    def check_integrity(self) -> None:
        """Raises AssertionError when slots or masks contradict each other."""
        assert self._live == sum(self._bits.values())
        assert self._workers == {bit: worker for worker, bit in self._bits.items()}
        cleaning = [bit for bit, _ in self._forgotten]
        slots = sorted([*self._bits.values(), *self._free, *cleaning])
        assert slots == [1 << slot for slot in range(self._slots)]
        dirty = self._live | sum(cleaning)
        assert all(mask and not mask & ~dirty for mask in self._masks.values())
        for bit, held in self._forgotten:
            assert held.keys() == {name for name, mask in self._masks.items() if mask & bit}

    def _match(self, boundaries: Sequence[PrefixHash], start: int, among: int) -> dict[str, int]:
        """How many of `boundaries` each of the mask `among` holds, all of whom hold `start` of
        them and maybe not by the index; those that hold no more are left out.
        """
        matched: dict[str, int] = {}
        for held, mask in self._losses(boundaries, start, among):
            leaving = mask
            while leaving:
                bit = leaving & -leaving
                matched[self._workers[bit]] = held
                leaving ^= bit
        return matched

    def _losses(
        self, boundaries: Sequence[PrefixHash], held: int, among: int
    ) -> Iterator[tuple[int, int]]:
        """How many boundaries those hold, as a mask, that do not hold one more.

        All of `among` hold `held` of them, and those that hold no more are left out.
        """
        get, length = self._masks.get, len(boundaries)
        low, low_mask = held + 1, get(boundaries[held], 0) & among if held < length else 0
        while low_mask:
            high = min(2 * low - held, length + 1)
            high_mask = get(boundaries[high - 1], 0) & low_mask if high <= length else 0
            spans = [(low, low_mask, high, high_mask)]
            low, low_mask = high, high_mask
            while spans:
                start, before, end, after = spans.pop()
                if before == after:
                    continue
                middle = (start + end) // 2
                if middle == start:
                    yield start, before ^ after
                    continue
                between = get(boundaries[middle - 1], 0) & before
                lost = (before ^ between).bit_count(), (between & ~after).bit_count()
                if end - start <= WALK * min(lost):
                    yield from self._walked(start, before, boundaries[start : end - 1], after)
                else:
                    spans.append((middle, between, end, between & after))
                    spans.append((start, before, middle, between))

    def _walked(
        self, start: int, before: int, names: Sequence[PrefixHash], after: int
    ) -> Iterator[tuple[int, int]]:
        """The same where `before` holds `start` boundaries and, beyond `names`, `after` goes on."""
        last = None
        for held, mask in enumerate(map(self._masks.get, names, repeat(0)), start):
            if mask is not last:
                last = mask
                kept = mask & before
                if kept != before:
                    yield held, before ^ kept
                    before = kept
        yield start + len(names), before & ~after

    def _clean(self, limit: int) -> None:
        while self._forgotten:
            bit, held = self._forgotten[-1]
            step = min(limit, len(held))
            self._cleared(bit, [held.popitem()[0] for _ in range(step)])
            if held:
                return
            limit -= step
            self._forgotten.pop()
            self._free.append(bit)

    def _cleared(self, bit: int, hashes: Collection[PrefixHash]) -> list[PrefixHash]:
        """Take `bit` out of the masks of `hashes`; those that no live worker holds then."""
        masks, live, gone = self._masks, self._live, []
        before = after = 0
        for name in hashes:
            mask = masks.get(name, 0)
            if mask is not before:
                before, after = mask, mask & ~bit
            if after:
                masks[name] = after
            elif mask:
                del masks[name]
            if mask and not after & live:
                gone.append(name)
        return gone

    def _enter(self, worker: str) -> int:
        if self._free:
            bit = self._free.pop()
        else:
            bit = 1 << self._slots
            self._slots += 1
        self._workers[bit] = worker
        self._bits[worker] = bit
        self._live |= bit
        return bit
