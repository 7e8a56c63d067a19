"""What simulated sequences generate takes its blocks in time, and is *booked* late.

To book tokens is to append them to their sequence and to share their KV in the tree. That is done
when a sequence has filled its blocks, at its first token and at its end, and for all before one may
lose its blocks. So whose prompt goes on into an answer that is under way finds no more of it than
was booked: what a leap has generated is missing until the block is full in which that ended.
"""

from collections.abc import Iterable

from sim.worker.visit import Visit
from worker.engine.sequence import Sequence
from worker.kv.manager import KVManager


class Booking:
    """Args: `manager` of the KV memory."""

    def __init__(self, manager: KVManager) -> None:
        self._manager = manager

    @property
    def most_blocks(self) -> int:
        """Blocks that sequences can take before one of them loses its own."""
        stats = self._manager.stats()
        return stats.free_blocks + stats.cached_blocks

    def take(self, sequence: Sequence, tokens: int) -> None:
        """The blocks for so many tokens, which are spare."""
        assert sequence.kv
        taken = self._manager.grow(sequence.kv, tokens)
        assert taken, "a leap went beyond the memory"

    def look_at(self, sequence: Sequence, visit: Visit) -> bool:
        """Book what was generated, if that is to be done now; whether it has ended.

        To be called when `visit.length` has come to `visit.look_at`, which this sets anew.
        """
        self.take(sequence, visit.length - 1)
        assert sequence.kv
        room = sequence.kv.room
        first = len(sequence.tokens) == sequence.request.prompt_tokens
        ended = visit.length == visit.final_length
        if ended or first or visit.length > room:
            self._book(sequence, visit)
        visit.look_at = min(visit.final_length, room + 1)
        return ended

    def book_all(self, visits: Iterable[tuple[Sequence, Visit]]) -> None:
        """So that nothing is lost that was computed."""
        for sequence, visit in visits:
            if visit.length > len(sequence.tokens):
                self._book(sequence, visit)

    def _book(self, sequence: Sequence, visit: Visit) -> None:
        assert sequence.kv
        visit.book(sequence.tokens)
        self._manager.commit(sequence.kv, sequence.tokens, len(sequence.tokens) - 1)
