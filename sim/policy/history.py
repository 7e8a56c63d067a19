"""What was sent where: the approximate prefix tree of routers that get no reports of workers.

Such a router takes for cached what it has sent, until it forgets it. Here a prompt is known by its
boundaries. What each worker was sent is prefix-closed: who was sent a boundary was sent all shorter
ones, and they are forgotten after it. What lies beyond a boundary that was removed does not match.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

from radixgate.prefix import PrefixHash


class PromptHistory:
    """The boundaries that each worker was sent, and how long ago.

    Args: `workers`, ids of all.
    """

    def __init__(self, workers: Iterable[str]) -> None:
        self._sent: dict[str, dict[PrefixHash, None]] = {worker: {} for worker in workers}
        self._holders: dict[PrefixHash, tuple[str, ...]] = {}
        self._shared: dict[tuple[str, ...], tuple[str, ...]] = {(): ()}

    def sent(self, worker: str, boundaries: Sequence[PrefixHash]) -> None:
        """`worker` was sent a prompt with all these `boundaries`, shortest first."""
        sent, holders = self._sent[worker], self._holders
        before: tuple[str, ...] | None = ()
        after = self._with((), worker)
        for name in reversed(boundaries):
            if name in sent:
                del sent[name]
            else:
                known = holders.get(name, ())
                if known is not before:
                    before, after = known, self._with(known, worker)
                holders[name] = after
            sent[name] = None

    def match(self, boundaries: Sequence[PrefixHash]) -> tuple[int, tuple[str, ...]]:
        """How many of `boundaries` any worker was sent, and who all of these.

        When nobody was sent any, these are no workers.
        """
        low, high = 0, len(boundaries)
        while low < high:
            middle = (low + high) // 2
            if boundaries[middle] in self._holders:
                low = middle + 1
            else:
                high = middle
        return low, self._holders[boundaries[low - 1]] if low else ()

    def matches(self, boundaries: Iterable[PrefixHash]) -> dict[str, int]:
        """How many of `boundaries` each worker was sent; without those that were sent none."""
        matched: dict[str, int] = {}
        before: tuple[str, ...] = ()
        # Who was sent all so far.
        alike: tuple[str, ...] = ()
        depth = 0
        for name in boundaries:
            holders = self._holders.get(name, ())
            if holders is not before:
                matched.update((worker, depth) for worker in alike if worker not in holders)
                alike = tuple(each for each in alike if each in holders) if depth else holders
                before = holders
            if not alike:
                return matched
            depth += 1
        matched.update((worker, depth) for worker in alike)
        return matched

    def size(self, worker: str) -> int:
        """Boundaries that `worker` was sent."""
        return len(self._sent[worker])

    def forget(self, worker: str, limit: int) -> None:
        """What `worker` was sent longest ago, until `limit` boundaries are left."""
        sent = self._sent[worker]
        if len(sent) > limit:
            self.removed(worker, list(islice(sent, len(sent) - limit)))

    def removed(self, worker: str, boundaries: Iterable[PrefixHash]) -> None:
        """`worker` does not hold these `boundaries` any more, as far as it was sent them."""
        sent = self._sent[worker]
        before: tuple[str, ...] = ()
        after: tuple[str, ...] = ()
        for name in boundaries:
            if name not in sent:
                continue
            del sent[name]
            holders = self._holders[name]
            if holders is not before:
                before, after = holders, self._without(holders, worker)
            if after:
                self._holders[name] = after
            else:
                del self._holders[name]

    def check_integrity(self) -> None:
        """Raises AssertionError when the two views contradict each other."""
        held = {name: set(holders) for name, holders in self._holders.items()}
        for worker, names in self._sent.items():
            assert names.keys() == {name for name, holders in held.items() if worker in holders}
        assert all(held.values())

    def _with(self, holders: tuple[str, ...], worker: str) -> tuple[str, ...]:
        more = (*holders, worker)
        return self._shared.setdefault(more, more)

    def _without(self, holders: tuple[str, ...], worker: str) -> tuple[str, ...]:
        fewer = tuple(each for each in holders if each != worker)
        return self._shared.setdefault(fewer, fewer)
