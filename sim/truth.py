"""What workers really hold, which no gateway sees: why a prompt token was not cached."""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from itertools import takewhile
from typing import NamedTuple

from radixgate.prefix import PrefixHash

from gateway.route.index import PrefixIndex
from worker.kv.events import KvEvents, Reason


class Fates(NamedTuple):
    """Tokens of a prompt, by the first of these that is true of them.

    Args:
        cached: the worker had their KV.
        stale: the policy believed so.
        elsewhere: another worker had it.
        evicted: some worker had it before.
        new: no worker ever had it, or they lie behind the last boundary.
    """

    cached: int
    stale: int
    elsewhere: int
    evicted: int
    new: int


class Truth:
    """Fed by the events of all workers, as they happen."""

    def __init__(self) -> None:
        self.held = PrefixIndex()
        self.ever: set[PrefixHash] = set()

    def fates(
        self,
        worker: str,
        boundaries: Sequence[PrefixHash],
        stride: int,
        *,
        prompt_tokens: int,
        cached: int,
        expected: int,
    ) -> Fates:
        """Of a prompt that `worker` begins with now.

        Args:
            worker: that has it.
            boundaries: of the prompt.
            stride: tokens from one to the next.
            prompt_tokens: in all.
            cached: of these.
            expected: to be cached there, by the policy.
        """
        held = self.held.match(boundaries)
        known = max(cached, min(expected, prompt_tokens))
        others = max((count for other, count in held.items() if other != worker), default=0)
        found = max(known, others * stride)
        start = found // stride
        ever = sum(1 for _ in takewhile(self.ever.__contains__, boundaries[start:]))
        seen = max(found, (start + ever) * stride if ever else found)
        return Fates(cached, known - cached, found - known, seen - found, prompt_tokens - seen)


class ObservedEvents(KvEvents):
    """The ledger of one worker, from which the truth is known at once.

    Args: `worker`, by its name; the `truth` that is told.
    """

    def __init__(self, worker: str, truth: Truth) -> None:
        super().__init__(nullcontext())
        self._worker = worker
        self._truth = truth

    def stored(self, hashes: Iterable[PrefixHash]) -> None:
        """As `KvEvents.stored`."""
        new = list(hashes)
        super().stored(new)
        if new:
            self._truth.held.stored(self._worker, new)
            self._truth.ever.update(new)

    def removed(self, hashes: Iterable[PrefixHash], reason: Reason) -> None:
        """As `KvEvents.removed`."""
        gone = list(hashes)
        super().removed(gone, reason)
        if gone:
            self._truth.held.removed(self._worker, gone)
