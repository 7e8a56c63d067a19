"""What simulated sequences generate takes its blocks in time, and is *booked* late.

Blocks are taken for all that generate at once, into the reserve of the KV manager, and given to a
sequence when it needs them for itself. To book tokens is to append them to their sequence and to
share their KV in the tree. That is done at the first token and at the end, and for all before one
may lose its blocks. So whose prompt goes on into an answer that is under way finds no more of it
than was booked.
"""

from collections.abc import Iterable

from sim.worker.generating import Generating
from sim.worker.visit import Visit
from worker.engine.sequence import Sequence
from worker.kv.manager import KVManager


class Booking:
    """Args: `manager` of the KV memory; who is `generating` in it."""

    def __init__(self, manager: KVManager, generating: Generating) -> None:
        self._manager = manager
        self._generating = generating

    def take(self, steps: int) -> bool:
        """The blocks for what all have after so many steps more.

        Returns:
            False, and none are taken, when that needs some of those that are kept for who waits.
        """
        generating = self._generating
        if wanted := generating.lacking(steps):
            # NOTE: any of them, since in a simulation tenants have no shares, and one account.
            asker = next(iter(generating)).kv
            assert asker
            if not self._manager.reserve(wanted, asker):
                return False
        generating.served(steps)
        return True

    def take_in_turn(self) -> bool:
        """As `take` for what all have now, one after the other, the most urgent first.

        So each takes protection from as few who wait as it must, as in single steps. In any case
        what was taken for all before is given to them.

        Returns:
            False, and none are taken, when there are too few even so.
        """
        generating, manager = self._generating, self._manager
        wanted, stats = generating.lacking(0), manager.stats()
        for sequence in generating:
            self._give(sequence)
        generating.served(0)
        if wanted > stats.free_blocks + stats.cached_blocks:
            return False
        for sequence in sorted(generating, key=lambda each: each.urgency):
            assert sequence.kv
            if not manager.grow(sequence.kv, generating.length(sequence)):
                return False
        return True

    def look_at(self, sequence: Sequence, visit: Visit) -> bool:
        """Book what was generated, if that is to be done now; whether it has ended."""
        first = sequence.tokens.length == sequence.request.prompt_tokens
        ended = visit.length == visit.final_length
        if sequence in self._generating:
            self._give(sequence)
        if ended or first:
            self._book(sequence, visit)
        return ended

    def book_all(self, visits: Iterable[tuple[Sequence, Visit]]) -> None:
        """So that nothing is lost that was computed."""
        for sequence, visit in visits:
            if visit.length > sequence.tokens.length:
                self._book(sequence, visit)

    def _give(self, sequence: Sequence) -> None:
        """Its part of what was taken for all."""
        kv, tokens = sequence.kv, self._generating.served_tokens(sequence)
        assert kv
        if tokens > kv.room:
            self._manager.give(kv, self._manager.lacking(kv, tokens))

    def _book(self, sequence: Sequence, visit: Visit) -> None:
        assert sequence.kv
        visit.book(sequence.tokens)
        self._manager.commit(sequence.kv, sequence.tokens, sequence.tokens.length - 1)
