"""Generations that are counted together are as if each were counted by itself."""

from array import array
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from radixgate.namespace import NamespaceSeed

from sim.worker.generating import Generating
from tests.engine.toys import request, toy_tokenizer
from tests.sim.small import BLOCK, visit_of
from worker.engine.output import OutputText
from worker.engine.sequence import Sequence, Times
from worker.kv.manager import SequenceKV
from worker.kv.misses import Misses
from worker.kv.tokens import Tokens


@dataclass
class Generation:
    """As one would be by itself: tokens that it has, has blocks for, and is going to have."""

    length: int
    room: int
    final: int

    def lacking(self, steps: int) -> int:
        return max(0, -(-(self.length + steps - self.room) // BLOCK))


def sequence_of(order: int, room: int) -> Sequence:
    asked = request([1])
    text = OutputText(toy_tokenizer(), asked)
    sequence = Sequence(asked, order, Tokens(NamespaceSeed(0), BLOCK), text, Times(0))
    sequence.kv = SequenceKV(array("q"), room, 0, 0, Misses(0, 0, 0, 0), None)
    return sequence


class Generations(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.generating = Generating(BLOCK)
        self.alone: dict[Sequence, Generation] = {}
        self.orders = 0

    @rule(length=st.integers(1, 12), left=st.integers(1, 12), one_more=st.booleans())
    def join(self, length: int, left: int, one_more: bool) -> None:
        """With room for what it has, or for one token more."""
        room = -(-(length + one_more) // BLOCK) * BLOCK
        self.orders += 1
        # NOTE: who came last is the most urgent, so that this is not the order in which they came.
        sequence = sequence_of(-self.orders, room)
        self.generating.join(sequence, visit_of(length, length + left))
        self.alone[sequence] = Generation(length, room, length + left)

    @precondition(lambda self: self.alone)
    @rule(data=st.data())
    def leap(self, data: st.DataObject) -> None:
        steps = data.draw(st.integers(1, self.generating.tokens_left))
        if data.draw(st.booleans()):
            self.take(data.draw(st.integers(0, steps - 1)))
        ended = self.generating.advance(steps)
        for each in self.alone.values():
            each.length += steps
        self.take(-1)
        expected = [one for one, each in self.alone.items() if each.length == each.final]
        assert [one for one, _ in ended] == sorted(expected, key=lambda one: one.urgency)
        for sequence, visit in ended:
            assert self.generating.served_tokens(sequence) == visit.final_length - 1
            self.generating.end(sequence)
            assert visit.length == self.alone.pop(sequence).length
        self.take(0)

    def take(self, steps: int) -> None:
        wanted = {sequence: each.lacking(steps) for sequence, each in self.alone.items()}
        assert self.generating.lacking(steps) == sum(wanted.values())
        self.generating.served(steps)
        assert self.generating.lacking(steps) == 0
        for sequence, blocks in wanted.items():
            self.alone[sequence].room += blocks * BLOCK

    @precondition(lambda self: self.alone)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(list(self.alone)))
        self.generating.leave(sequence)
        del self.alone[sequence]

    @invariant()
    def all_are_counted(self) -> None:
        alone = self.alone
        assert list(self.generating) == list(alone)
        assert self.generating.context == sum(each.length for each in alone.values())
        for steps in range(2 * BLOCK + 1):
            wanted = sum(each.lacking(steps) for each in alone.values())
            assert self.generating.lacking(steps) == wanted
        for sequence, each in alone.items():
            assert sequence in self.generating
            assert self.generating.length(sequence) == each.length
        if alone:
            left = min(each.final - each.length for each in alone.values())
            assert self.generating.tokens_left == left


TestGenerations = Generations.TestCase
