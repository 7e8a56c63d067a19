"""The sequences that generate: each step gives them all a token, so they are counted together."""

import heapq
from collections.abc import Iterable
from operator import itemgetter

from sim.worker.visit import Visit
from worker.engine.sequence import Sequence, Urgency


class Generating:
    """Its length is how many there are.

    Attributes:
        context: tokens that they have together.
    """

    def __init__(self) -> None:
        self.context = 0
        self._steps = 0
        # What `visit.length` would be, had nothing been generated since step 0.
        self._starts: dict[Sequence, int] = {}
        self._visits: dict[Sequence, Visit] = {}
        self._due: list[tuple[int, Urgency, Sequence, Visit]] = []

    def __len__(self) -> int:
        return len(self._starts)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._starts

    def others(self, sequences: Iterable[Sequence]) -> list[Sequence]:
        """Those that are not among them."""
        starts = self._starts
        return [each for each in sequences if each not in starts]

    @property
    def tokens_left(self) -> int:
        """Steps until the first of them, at least one, has all its tokens."""
        visits = self._visits
        lefts = [visits[each].final_length - start for each, start in self._starts.items()]
        return min(lefts) - self._steps

    def join(self, sequence: Sequence, visit: Visit) -> None:
        """It generates from the next step on, and is due when it has filled its blocks or ends."""
        self._starts[sequence] = visit.length - self._steps
        self._visits[sequence] = visit
        self.context += visit.length
        self.go_on(sequence, visit)

    def go_on(self, sequence: Sequence, visit: Visit) -> None:
        """It is due when it has filled the blocks that it has now, or ends."""
        assert sequence.kv
        due = min(visit.final_length, sequence.kv.room + 1) - self._starts[sequence]
        heapq.heappush(self._due, (due, sequence.urgency, sequence, visit))

    def leave(self, sequence: Sequence) -> None:
        """It does so no more, though it is still to be due."""
        self._due = [each for each in self._due if each[2] is not sequence]
        heapq.heapify(self._due)
        self.end(sequence)

    def end(self, sequence: Sequence) -> None:
        """It does so no more, and is not to be due. Its `visit.length` is what it is now."""
        visit = self._visits.pop(sequence)
        visit.length = self._starts.pop(sequence) + self._steps
        self.context -= visit.length

    def advance(self, steps: int) -> list[tuple[Sequence, Visit]]:
        """So many steps are over. Those that are due, the most urgent first, as they run.

        Each of them is to go on or to end; its `visit.length` is what it is now.
        """
        self._steps += steps
        self.context += steps * len(self._starts)
        due = []
        while self._due and self._due[0][0] <= self._steps:
            due.append(heapq.heappop(self._due))
        # NOTE: not by when they were due: those that end now may have filled a block before.
        due.sort(key=itemgetter(1))
        for _, _, sequence, visit in due:
            visit.length = self._starts[sequence] + self._steps
        return [(sequence, visit) for _, _, sequence, visit in due]

    def due_in(self, steps: int) -> list[tuple[Sequence, int]]:
        """Who will be due after so many steps more, and how much of it is computed then."""
        by = self._steps + steps
        return [(each, self._starts[each] + by - 1) for at, _, each, _ in self._due if at <= by]

    def settle(self) -> None:
        """Write to all visits what their length is now."""
        for sequence, visit in self._visits.items():
            visit.length = self._starts[sequence] + self._steps
