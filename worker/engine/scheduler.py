"""Which tokens to compute next: pure decisions over the sequences and the KV manager.

One budget of tokens a step. Sequences about to give a token come first, then other running ones in
chunks, then waiting ones. Among them the higher priority goes first; of equal priority the one that
arrived first, save that of waiting ones the longest cached prefix goes first. What holds:

- A step that goes on with a running generation computes no more of prompts than it is allowed to,
  so that how long a prompt delays generations is the caller's choice.
- Admission takes blocks for all tokens a sequence has: a prompt never runs out of them half-way.
- One admission in `TURN_OF_OLDEST` is that of the oldest waiting sequence, whatever its priority.
  So one with n older ones before it is admitted after at most (n + 1) times as many others.
- When a tenant cannot have memory for its next sequence, other tenants may still have it for
  theirs, save when it is the turn of the oldest: then all wait until that one fits.
- A sequence whose prefix is being computed by a running one waits for it: N that come at once with
  one prefix compute it once. When the running one goes away, one of the others computes it.
- When no block is left, the least urgent running sequence gives up its own, to be computed again.
  Nobody is admitted after that until a running sequence has left, so preemption cannot loop; and
  the last one running always fits, since no sequence larger than the pool is taken.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import NamedTuple

from radixgate.work import prefill_work

from worker.engine.sequence import Sequence, Urgency
from worker.kv.manager import KVManager, SequenceKV

TURN_OF_OLDEST = 16
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

    def work(self, attention_tokens: int) -> float:
        """Of computing it, see `radixgate.work`."""
        return prefill_work(self.start, self.stop, attention_tokens)


class Step(NamedTuple):
    """What to compute now, and who came in or went back to get there.

    Args:
        generating: of which just the newest token is computed, of a generation under way.
        prompts: what is computed of others.
        admitted: who came in.
        preempted: who went back.
    """

    generating: list[Sequence]
    prompts: list[Chunk]
    admitted: list[Sequence]
    preempted: list[Sequence]

    def chunks(self) -> list[Chunk]:
        """All that is to be computed, generations first."""
        return [_newest(each, each.tokens.length) for each in self.generating] + self.prompts

    @property
    def prompt_tokens(self) -> int:
        """Tokens to compute of `prompts`."""
        return sum(chunk.length for chunk in self.prompts)

    def prompt_work(self, attention_tokens: int) -> float:
        """Of computing the prompts, see `radixgate.work`."""
        return sum(chunk.work(attention_tokens) for chunk in self.prompts)


class Scheduler:
    """Holds the waiting and the running sequences, both the most urgent first.

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
        self._admissions = 0

    def add(self, sequence: Sequence) -> None:
        """Let `sequence` wait for its turn."""
        self._look_up(sequence)
        insort(self.waiting, sequence, key=_urgency)

    def remove(self, sequence: Sequence) -> None:
        """Drop a sequence that finished, failed or was cancelled, and all that it holds."""
        if sequence.kv is None:
            self.waiting.remove(sequence)
            self._manager.stop_waiting(sequence.tokens)
            return
        self.running.remove(sequence)
        self._release(sequence)
        self._overcommitted = False

    def schedule(self, beside: int | None = None) -> Step:
        """The next step; no chunks only when there is no sequence at all.

        Args:
            beside: tokens of prompts that a step with generations may compute, at least 1; None
                leaves it to the token budget.
        """
        plan = _Plan(self._token_budget, beside)
        preempted: list[Sequence] = []
        later: list[Sequence] = []
        for sequence in list(self.running):
            kv = sequence.kv
            if kv is None:
                continue
            length = sequence.tokens.length
            if length - kv.stored > 1:
                later.append(sequence)
            elif length <= kv.room or self._make_room(sequence, length, plan, preempted):
                # NOTE: in line, since all that generate pass here at each step.
                if length > sequence.request.prompt_tokens:
                    plan.generating.append(sequence)
                else:
                    plan.add(sequence, length)
        for sequence in later:
            length = sequence.tokens.length
            goes_on = sequence.kv and plan.has_room(sequence.pending)
            if goes_on and self._make_room(sequence, length, plan, preempted):
                plan.add(sequence, length)
        admitted = self._admit(plan, [each for each in later if each.kv])
        return plan.step(admitted, preempted)

    def _make_room(
        self, sequence: Sequence, length: int, plan: "_Plan", preempted: list[Sequence]
    ) -> bool:
        """Blocks for so many tokens; False when it was itself the one who had to give up its own.

        Who gives up blocks for it leaves the `plan` and joins the `preempted`.
        """
        while (kv := sequence.kv) and not self._manager.grow(kv, length):
            victim = self._least_urgent(kv)
            plan.drop(victim)
            self._preempt(victim)
            preempted.append(victim)
        return sequence.kv is not None

    def _admit(self, plan: "_Plan", computing: list[Sequence]) -> list[Sequence]:
        """Who comes in, while the prompts of `computing` are computed; these join them."""
        admitted: list[Sequence] = []
        full = len(self.running) == self._max_running
        if not self.waiting or self._overcommitted or not plan.left or full:
            return admitted
        in_turn, refused = self._in_turn(), set[str]()
        while len(self.running) < self._max_running:
            sequence = self._next(in_turn, refused, computing)
            if sequence is None:
                break
            if admitted:
                # NOTE: again, since who was admitted before it may have evicted its prefix.
                self._look_up(sequence)
            if not plan.has_room(sequence.pending):
                break
            sequence.kv = self._manager.open(
                sequence.tokens, sequence.request.final_length, hit=sequence.counts
            )
            if sequence.kv is None:
                if self._turn_of_oldest:
                    break
                refused.add(sequence.tokens.tenant)
                continue
            self.waiting.remove(sequence)
            insort(self.running, sequence, key=_urgency)
            self._admissions += 1
            admitted.append(sequence)
            plan.add(sequence, sequence.tokens.length)
            computing.append(sequence)
        return admitted

    def _in_turn(self) -> Iterator[Sequence]:
        """The most urgent of the waiting sequences; of equal priority, by cached prefix."""
        window = self.waiting[:ADMISSION_WINDOW]
        for sequence in window:
            self._look_up(sequence)

        def turn(sequence: Sequence) -> tuple[int, int, int]:
            return -sequence.request.priority, -sequence.cached_hint, sequence.order

        return iter(sorted(window, key=turn))

    @property
    def _turn_of_oldest(self) -> bool:
        return (self._admissions + 1) % TURN_OF_OLDEST == 0

    def _next(
        self, in_turn: Iterator[Sequence], refused: set[str], computing: list[Sequence]
    ) -> Sequence | None:
        """Who may be admitted next; None when all, or the one whose turn it is, must wait.

        Tenants that were `refused` memory in this step do not get it for a smaller sequence, and
        whose prefix is among what is being computed waits for it.
        """
        if self.waiting and self._turn_of_oldest:
            oldest = min(self.waiting, key=lambda each: each.order)
            self._look_up(oldest)
            return None if _awaits_prefix(oldest, computing) else oldest
        for each in in_turn:
            ready = each.kv is None and each.tokens.tenant not in refused
            if ready and not _awaits_prefix(each, computing):
                return each
        return None

    def _look_up(self, sequence: Sequence) -> None:
        """See how much of a waiting sequence is cached, and have it protected."""
        sequence.cached_hint = self._manager.look_up(sequence.tokens)

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

    def _least_urgent(self, asker: SequenceKV) -> Sequence:
        """Who gives up blocks for `asker`: the last in turn whose blocks may go to it.

        None that ends within a block does while another can.
        """
        soon = self._manager.block_size
        yielding = [each for each in self.running if self._yields(each, asker)]
        return max(yielding, key=lambda each: (each.tokens_left > soon, each.urgency))

    def _yields(self, sequence: Sequence, asker: SequenceKV) -> bool:
        return sequence.kv is not None and self._manager.yields(sequence.kv, asker)


class _Plan:
    """A step while it is put together.

    Args:
        budget: tokens of the step.
        beside: tokens of it that prompts may have when generations go on; None: no less than all.

    Attributes:
        generating: of which just the newest token is computed, of a generation under way.
    """

    def __init__(self, budget: int, beside: int | None) -> None:
        self.generating: list[Sequence] = []
        self._budget = budget
        self._beside = budget if beside is None else beside
        self._prompt_tokens = 0
        self._prompts: list[Chunk] = []

    @property
    def left(self) -> int:
        """Tokens of the budget that nobody has."""
        return self._budget - len(self.generating) - self._prompt_tokens

    def has_room(self, pending: int) -> bool:
        """Whether some of so many `pending` tokens can be computed."""
        return self._room(pending) > 0

    def add(self, sequence: Sequence, length: int) -> None:
        """As much as there is room for of the `length` tokens that `sequence` has."""
        pending = sequence.pending
        if pending == 1 and length > sequence.request.prompt_tokens:
            self.generating.append(sequence)
            return
        tokens = min(pending, self._room(pending))
        start = length - pending
        self._prompts.append(Chunk(sequence, start, start + tokens, tokens == pending))
        self._prompt_tokens += tokens

    def drop(self, sequence: Sequence) -> None:
        """Compute nothing of `sequence`; harmless when it is not in the plan."""
        if sequence in self.generating:
            self.generating.remove(sequence)
        for chunk in self._prompts:
            if chunk.sequence is sequence:
                self._prompts.remove(chunk)
                self._prompt_tokens -= chunk.length
                break

    def step(self, admitted: list[Sequence], preempted: list[Sequence]) -> Step:
        """The plan as it is now."""
        return Step(self.generating, self._prompts, admitted, preempted)

    def _room(self, pending: int) -> int:
        if pending > 1 and self.generating:
            return min(self.left, self._beside - self._prompt_tokens)
        return self.left


def _newest(sequence: Sequence, length: int) -> Chunk:
    return Chunk(sequence, length - 1, length, completes=True)


def _urgency(sequence: Sequence) -> Urgency:
    return sequence.urgency


def _awaits_prefix(sequence: Sequence, computing: list[Sequence]) -> bool:
    """Whether one of them is about to store more of its prefix than is cached."""
    return any(_shared_prefix(each, sequence) > sequence.cached_hint for each in computing)


def _shared_prefix(one: Sequence, other: Sequence) -> int:
    """Tokens up to the last boundary that both sequences share, known by its hash."""
    ours, theirs = one.tokens.hashes, other.tokens.hashes
    boundaries = range(min(len(ours), len(theirs)))
    shared = bisect_left(boundaries, True, key=lambda index: ours[index] != theirs[index])
    return shared * one.tokens.stride
