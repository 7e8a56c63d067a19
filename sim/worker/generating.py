"""The sequences that generate: each step gives them all a token, so they are counted together."""

import heapq
from collections.abc import Iterable, Iterator
from operator import itemgetter

from sim.worker.visit import Visit
from worker.engine.sequence import Sequence, Urgency


class Generating:
    """Its length is how many there are.

    Args:
        block_size: tokens in a block.

    Attributes:
        context: tokens that they have together.
    """

    def __init__(self, block_size: int) -> None:
        self.context = 0
        self._block_size = block_size
        self._steps = 0
        # What `visit.length` would be, had nothing been generated since step 0.
        self._starts: dict[Sequence, int] = {}
        self._visits: dict[Sequence, Visit] = {}
        self._ends: list[tuple[int, Urgency, Sequence, Visit]] = []
        # They have blocks for what they have at this step.
        self._served = 0
        # By the remainder of a step by the block size: those that start a block with its token.
        self._start_blocks = [0] * block_size
        # Of these, those that have that block already for the step after `_served`.
        self._ahead: set[Sequence] = set()

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._starts)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._starts

    def others(self, sequences: Iterable[Sequence]) -> list[Sequence]:
        """Those that are not among them."""
        starts = self._starts
        return [each for each in sequences if each not in starts]

    @property
    def tokens_left(self) -> int:
        """Steps until the first of them, at least one, has all its tokens."""
        return self._ends[0][0] - self._steps

    def join(self, sequence: Sequence, visit: Visit) -> None:
        """It generates from the next step on, and has blocks for what it has, or for one more."""
        assert sequence.kv
        start = visit.length - self._steps
        self._starts[sequence] = start
        self._visits[sequence] = visit
        self.context += visit.length
        self._start_blocks[(1 - start) % self._block_size] += 1
        if sequence.kv.room >= visit.length + self._block_size:
            self._ahead.add(sequence)
        end = visit.final_length - start
        heapq.heappush(self._ends, (end, sequence.urgency, sequence, visit))

    def leave(self, sequence: Sequence) -> None:
        """It does so no more, though it has not ended."""
        self._ends = [each for each in self._ends if each[2] is not sequence]
        heapq.heapify(self._ends)
        self.end(sequence)

    def end(self, sequence: Sequence) -> None:
        """It does so no more. Its `visit.length` is what it is now."""
        start, visit = self._starts.pop(sequence), self._visits.pop(sequence)
        visit.length = start + self._steps
        self.context -= visit.length
        self._start_blocks[(1 - start) % self._block_size] -= 1
        self._ahead.discard(sequence)

    def advance(self, steps: int) -> list[tuple[Sequence, Visit]]:
        """So many steps are over. Those that end now, the most urgent first, as they run.

        Each `visit.length` of theirs is what it is now.
        """
        self._steps += steps
        self.context += steps * len(self._starts)
        ends = []
        while self._ends and self._ends[0][0] <= self._steps:
            ends.append(heapq.heappop(self._ends))
        ends.sort(key=itemgetter(1))
        for _, _, sequence, visit in ends:
            visit.length = self.length(sequence)
        return [(sequence, visit) for _, _, sequence, visit in ends]

    def lacking(self, steps: int) -> int:
        """Blocks that they have not for what each has after so many steps more."""
        by = self._steps + steps
        if by <= self._served:
            return 0
        whole, rest = divmod(by - self._served, self._block_size)
        blocks = whole * len(self._starts) - len(self._ahead)
        for step in range(by - rest + 1, by + 1):
            blocks += self._start_blocks[step % self._block_size]
        return blocks

    def served(self, steps: int) -> None:
        """They have these blocks now."""
        if self._steps + steps > self._served:
            self._served = self._steps + steps
            self._ahead.clear()

    def served_tokens(self, sequence: Sequence) -> int:
        """So many of its tokens have blocks."""
        return self._starts[sequence] + self._served

    def length(self, sequence: Sequence) -> int:
        """Tokens that it has."""
        return self._starts[sequence] + self._steps

    def settle(self) -> None:
        """Write to all visits what their length is now."""
        for sequence, visit in self._visits.items():
            visit.length = self.length(sequence)
