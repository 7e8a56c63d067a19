"""What simulated sequences generate takes its blocks in time, and is *booked* late.

To book tokens is to append them to their sequence and to share their KV in the tree. That is done
at the first token and at the end, and for all before one may lose its blocks. So whose prompt goes
on into an answer that is under way finds no more of it than was booked.
"""

from collections.abc import Iterable

from sim.worker.visit import Visit
from worker.engine.sequence import Sequence
from worker.kv.manager import KVManager


class Booking:
    """Args: `manager` of the KV memory."""

    def __init__(self, manager: KVManager) -> None:
        self._manager = manager

    def take(self, sequence: Sequence, tokens: int) -> None:
        """The blocks for so many tokens, which are spare."""
        assert sequence.kv
        taken = self._manager.grow(sequence.kv, tokens)
        assert taken, "a leap went beyond the memory"

    def look_at(self, sequence: Sequence, visit: Visit) -> bool:
        """Book what was generated, if that is to be done now; whether it has ended."""
        self.take(sequence, visit.length - 1)
        first = len(sequence.tokens) == sequence.request.prompt_tokens
        ended = visit.length == visit.final_length
        if ended or first:
            self._book(sequence, visit)
        return ended

    def take_newest(self, visits: list[tuple[Sequence, Visit]]) -> bool:
        """Blocks for the newest token of each; False, and none, when there are too few for all."""
        full = [each for each in visits if each[0].kv and each[1].length > each[0].kv.room]
        stats = self._manager.stats()
        if len(full) > stats.free_blocks + stats.cached_blocks:
            return False
        for sequence, visit in full:
            self.take(sequence, visit.length)
        return True

    def book_all(self, visits: Iterable[tuple[Sequence, Visit]]) -> None:
        """So that nothing is lost that was computed."""
        for sequence, visit in visits:
            if visit.length > len(sequence.tokens):
                self._book(sequence, visit)

    def _book(self, sequence: Sequence, visit: Visit) -> None:
        assert sequence.kv
        visit.book(sequence.tokens)
        self._manager.commit(sequence.kv, sequence.tokens, len(sequence.tokens) - 1)
