"""Which tokens to compute next: pure decisions over the sequences and the KV manager.

One budget of tokens a step. Sequences about to give a token come first, so that a long prompt slows
the others by no more than one budget; then running ones in order of arrival, in chunks; then
waiting ones, those with the longest cached prefix first. What holds:

- Admission takes blocks for all tokens a sequence has: a prompt never runs out of them half-way.
- No sequence is overtaken more than `MAX_OVERTAKEN` times before it is the next to be admitted.
- A sequence whose prefix is being computed by a running one waits for it.
- When no block is left, the least urgent running sequence gives up its own, to be computed again.
  Nobody is admitted after that until a running sequence has left, so preemption cannot loop; and
  the last one running always fits, since no sequence larger than the pool is taken.
"""

from bisect import bisect_left, insort
from typing import NamedTuple

from worker.engine.sequence import Sequence
from worker.kv.manager import KVManager

MAX_OVERTAKEN = 16
ADMISSION_WINDOW = 32


class Chunk(NamedTuple):
    """Compute the tokens of `sequence` at positions [start, stop).

    With `completes` they are all it has, and the step gives its next token.
    """

    sequence: Sequence
    start: int
    stop: int
    completes: bool

    @property
    def length(self) -> int:
        """Tokens to compute."""
        return self.stop - self.start


class Step(NamedTuple):
    """What to compute now, and who came in or went back to get there."""

    chunks: list[Chunk]
    admitted: list[Sequence]
    preempted: list[Sequence]


class Scheduler:
    """Holds the waiting and the running sequences, both in order of arrival.

    Args:
        manager: of the KV that the sequences live in.
        max_running: sequences that may hold blocks at once.
        token_budget: tokens of one step; at least `max_running`, so that each can go on.
    """

    def __init__(self, manager: KVManager, max_running: int, token_budget: int) -> None:
        if not 1 <= max_running <= token_budget:
            raise ValueError(
                f"max running {max_running} is outside [1, {token_budget}], the token budget"
            )
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self._manager = manager
        self._max_running = max_running
        self._token_budget = token_budget
        self._overcommitted = False

    def add(self, sequence: Sequence) -> None:
        """Let `sequence` wait for its turn."""
        sequence.cached_hint = self._manager.cached_prefix(sequence.tokens)
        insort(self.waiting, sequence, key=_order)

    def remove(self, sequence: Sequence) -> None:
        """Drop a sequence that finished, failed or was cancelled, and all that it holds."""
        if sequence.kv is None:
            self.waiting.remove(sequence)
            return
        self.running.remove(sequence)
        self._release(sequence)
        self._overcommitted = False

    def schedule(self) -> Step:
        """The next step; no chunks only when there is no sequence at all."""
        plan: dict[Sequence, Chunk] = {}
        preempted: list[Sequence] = []
        budget = self._token_budget
        for sequence in sorted(self.running, key=lambda each: (each.pending > 1, each.order)):
            if not budget:
                break
            while sequence.kv and not self._manager.grow(sequence.kv, len(sequence.tokens)):
                victim = self._least_urgent()
                self._preempt(victim)
                preempted.append(victim)
                if victim in plan:
                    budget += plan.pop(victim).length
            if sequence.kv:
                plan[sequence] = _chunk(sequence, budget)
                budget -= plan[sequence].length
        admitted = self._admit(budget, plan)
        return Step(list(plan.values()), admitted, preempted)

    def _admit(self, budget: int, plan: dict[Sequence, Chunk]) -> list[Sequence]:
        admitted: list[Sequence] = []
        if not budget or self._overcommitted or len(self.running) == self._max_running:
            return admitted
        for sequence in self._candidates():
            if not budget or len(self.running) == self._max_running:
                break
            if sequence.overtaken < MAX_OVERTAKEN and self._awaits_prefix(sequence):
                continue
            sequence.kv = self._manager.open(sequence.tokens, sequence.request.final_length)
            if sequence.kv is None:
                break
            self._to_running(sequence)
            admitted.append(sequence)
            plan[sequence] = _chunk(sequence, budget)
            budget -= plan[sequence].length
        return admitted

    def _candidates(self) -> list[Sequence]:
        """Waiting sequences, the next to be admitted first."""
        window = self.waiting[:ADMISSION_WINDOW]
        for sequence in window:
            sequence.cached_hint = self._manager.cached_prefix(sequence.tokens)

        def urgency(sequence: Sequence) -> tuple[bool, int, int]:
            if sequence.overtaken >= MAX_OVERTAKEN:
                return False, 0, sequence.order
            return True, -sequence.cached_hint, sequence.order

        return sorted(window, key=urgency)

    def _awaits_prefix(self, sequence: Sequence) -> bool:
        """Whether a running sequence is about to store more of its prefix than is cached."""
        return any(
            _shared_prefix(other, sequence) > sequence.cached_hint
            for other in self.running
            if other.pending > 1
        )

    def _to_running(self, sequence: Sequence) -> None:
        position = self.waiting.index(sequence)
        for overtaken in self.waiting[:position]:
            overtaken.overtaken += 1
        del self.waiting[position]
        insort(self.running, sequence, key=_order)

    def _preempt(self, sequence: Sequence) -> None:
        assert len(self.running) > 1, "a sequence alone in the pool ran out of blocks"
        self.running.remove(sequence)
        self._release(sequence)
        sequence.preemptions += 1
        self.add(sequence)
        self._overcommitted = True

    def _release(self, sequence: Sequence) -> None:
        assert sequence.kv
        self._manager.close(sequence.kv)
        sequence.kv = None

    def _least_urgent(self) -> Sequence:
        """The last to arrive, but none that ends within a block while another can go."""
        soon = self._manager.block_size
        return max(self.running, key=lambda each: (each.tokens_left > soon, each.order))


def _order(sequence: Sequence) -> int:
    return sequence.order


def _chunk(sequence: Sequence, budget: int) -> Chunk:
    start, length = sequence.computed, min(sequence.pending, budget)
    return Chunk(sequence, start, start + length, completes=length == sequence.pending)


def _shared_prefix(one: Sequence, other: Sequence) -> int:
    """Tokens up to the last boundary that both sequences share, known by its hash."""
    ours, theirs = one.tokens.hashes, other.tokens.hashes
    boundaries = range(min(len(ours), len(theirs)))
    shared = bisect_left(boundaries, True, key=lambda index: ours[index] != theirs[index])
    return shared * one.tokens.stride
