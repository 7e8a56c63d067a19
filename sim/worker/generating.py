"""The sequences that generate: each step gives them all a token, so they are counted together."""

import heapq
from operator import attrgetter

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
        self._due: list[tuple[int, Urgency, Sequence]] = []

    def __len__(self) -> int:
        return len(self._starts)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._starts

    @property
    def tokens_left(self) -> int:
        """Steps until the first of them, at least one, has all its tokens."""
        visits = self._visits
        lefts = [visits[each].final_length - start for each, start in self._starts.items()]
        return min(lefts) - self._steps

    def join(self, sequence: Sequence, visit: Visit) -> None:
        """It generates from the next step on, and is due when it has filled its blocks or ends."""
        assert sequence.kv
        start = self._starts[sequence] = visit.length - self._steps
        self._visits[sequence] = visit
        self.context += visit.length
        due = min(visit.final_length, sequence.kv.room + 1) - start
        heapq.heappush(self._due, (due, sequence.urgency, sequence))

    def leave(self, sequence: Sequence) -> None:
        """It does so no more."""
        self._due = [each for each in self._due if each[-1] is not sequence]
        heapq.heapify(self._due)
        self._drop(sequence)

    def advance(self, steps: int) -> list[tuple[Sequence, Visit]]:
        """So many steps are over. Those that were due, the most urgent first, as they run.

        Each of them has left, and its `visit.length` is what it is now.
        """
        self._steps += steps
        self.context += steps * len(self._starts)
        due = []
        while self._due and self._due[0][0] <= self._steps:
            due.append(heapq.heappop(self._due)[-1])
        # NOTE: not by when they were due: those that end now may have filled a block before.
        due.sort(key=attrgetter("urgency"))
        return [(sequence, self._drop(sequence)) for sequence in due]

    def due_in(self, steps: int) -> list[tuple[Sequence, int]]:
        """Who will be due after so many steps more, and the length that it has then."""
        by = self._steps + steps
        return [(each, self._starts[each] + by) for at, _, each in self._due if at <= by]

    def settle(self) -> None:
        """Write to all visits what their length is now."""
        for sequence, visit in self._visits.items():
            visit.length = self._starts[sequence] + self._steps

    def _drop(self, sequence: Sequence) -> Visit:
        visit = self._visits.pop(sequence)
        visit.length = self._starts.pop(sequence) + self._steps
        self.context -= visit.length
        return visit
