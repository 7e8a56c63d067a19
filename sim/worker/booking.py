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

    def take(self, lengths: Iterable[tuple[Sequence, int]]) -> bool:
        """The blocks for so many tokens of each; False, and none, when there are too few."""
        growing = {each.kv: tokens for each, tokens in lengths if each.kv}
        if self._manager.grow_all(growing):
            return True
        lacking, stats = self._manager.lacking, self._manager.stats()
        wanted = sum(lacking(kv, tokens) for kv, tokens in growing.items() if tokens > kv.room)
        if wanted > stats.free_blocks + stats.cached_blocks:
            return False
        # NOTE: one by one, as in single steps: so each takes protection from as few who wait as it
        # must.
        return all(self._manager.grow(kv, tokens) for kv, tokens in growing.items())

    def look_at(self, sequence: Sequence, visit: Visit) -> bool:
        """Book what was generated, if that is to be done now; whether it has ended.

        It has the blocks for that.
        """
        first = sequence.tokens.length == sequence.request.prompt_tokens
        ended = visit.length == visit.final_length
        if ended or first:
            self._book(sequence, visit)
        return ended

    def book_all(self, visits: Iterable[tuple[Sequence, Visit]]) -> None:
        """So that nothing is lost that was computed."""
        for sequence, visit in visits:
            if visit.length > sequence.tokens.length:
                self._book(sequence, visit)

    def _book(self, sequence: Sequence, visit: Visit) -> None:
        assert sequence.kv
        visit.book(sequence.tokens)
        self._manager.commit(sequence.kv, sequence.tokens, sequence.tokens.length - 1)
