"""The scheduler's promises, one by one and under random load on a pool that is too small."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.toys import BLOCK, NAMESPACE, STRIDE, manager, request, toy_tokenizer
from worker.engine.scheduler import MAX_OVERTAKEN, Scheduler, Step
from worker.engine.sequence import Sequence, Times
from worker.engine.text import TextStream
from worker.kv.manager import KVManager
from worker.kv.tokens import Tokens

TOKENIZER = toy_tokenizer()


class Rig:
    """A scheduler whose steps are carried out by bookkeeping alone."""

    def __init__(self, num_blocks: int = 32, max_running: int = 4, token_budget: int = 16) -> None:
        self.manager: KVManager = manager(num_blocks)
        self.scheduler = Scheduler(self.manager, max_running, token_budget)
        self.token_budget, self.max_running = token_budget, max_running
        self.sequences: list[Sequence] = []

    def add(self, prompt: list[int], max_tokens: int = 5) -> Sequence:
        asked = request(prompt, max_tokens)
        tokens = Tokens(NAMESPACE, STRIDE)
        tokens.extend(asked.prompt)
        text = TextStream(TOKENIZER, prompt, ())
        sequence = Sequence(asked, len(self.sequences), tokens, text, Times(0))
        self.sequences.append(sequence)
        self.scheduler.add(sequence)
        return sequence

    def step(self) -> Step:
        step = self.scheduler.schedule()
        assert sum(chunk.length for chunk in step.chunks) <= self.token_budget
        assert len(self.scheduler.running) <= self.max_running
        assert len({chunk.sequence for chunk in step.chunks}) == len(step.chunks)
        for sequence, start, stop, completes in step.chunks:
            assert sequence.kv
            assert start == sequence.computed < stop <= len(sequence.tokens)
            assert completes == (stop == len(sequence.tokens))
            self.manager.commit(sequence.kv, sequence.tokens, stop)
            if completes:
                sequence.tokens.append((sequence.order * 7 + stop) % 50)
                if not sequence.tokens_left:
                    self.scheduler.remove(sequence)
        self.manager.check_integrity()
        return step

    def run(self, limit: int = 2000) -> int:
        steps = 0
        while self.scheduler.waiting or self.scheduler.running:
            assert self.step().chunks, "a step without progress"
            steps += 1
            assert steps < limit, "no end"
        return steps


def sequences(step: Step) -> list[int]:
    return [chunk.sequence.order for chunk in step.chunks]


def test_a_long_prompt_is_computed_in_chunks_of_the_budget() -> None:
    rig = Rig(token_budget=16)
    rig.add(list(range(40)))
    chunks = [[(c.start, c.stop, c.completes) for c in rig.step().chunks] for _ in range(3)]
    assert chunks == [[(0, 16, False)], [(16, 32, False)], [(32, 40, True)]]


def test_who_gives_a_token_comes_before_a_long_prompt() -> None:
    rig = Rig(token_budget=16)
    rig.add([1, 2])
    rig.step()
    rig.add(list(range(10, 50)))
    step = rig.step()
    assert [(c.sequence.order, c.length) for c in step.chunks] == [(0, 1), (1, 15)]


def test_a_fully_cached_prompt_computes_its_last_token_only() -> None:
    rig = Rig()
    prompt = list(range(3 * BLOCK))
    rig.add(prompt, max_tokens=1)
    rig.run()
    rig.add(prompt)
    assert [(c.start, c.stop) for c in rig.step().chunks] == [(11, 12)]


def test_the_longest_cached_prefix_is_admitted_first() -> None:
    rig = Rig(max_running=1)
    rig.add(list(range(20)), max_tokens=1)
    rig.run()
    cold, warm = rig.add([90] * 20), rig.add([*range(20), 5])
    assert rig.step().admitted == [warm]
    assert cold.overtaken == 1


def test_nobody_is_overtaken_for_ever() -> None:
    rig = Rig(max_running=1, num_blocks=64)
    rig.add(list(range(20)), max_tokens=1)
    rig.run()
    cold = rig.add([90] * 20)
    for _ in range(MAX_OVERTAKEN):
        warm = rig.add([*range(20), 5], max_tokens=1)
        assert rig.step().admitted == [warm]
    rig.add([*range(20), 5], max_tokens=1)
    assert rig.step().admitted == [cold]
    assert cold.overtaken == MAX_OVERTAKEN


def test_siblings_wait_for_a_prefix_that_is_being_computed() -> None:
    rig = Rig(token_budget=16)
    shared = list(range(3 * STRIDE))
    first, sibling, other = rig.add([*shared, 90]), rig.add([*shared, 91]), rig.add([70] * 3)
    assert rig.step().admitted == [first]
    second = rig.step()
    assert sibling not in second.admitted
    assert other in second.admitted
    assert rig.step().admitted == [sibling]
    assert sibling.kv
    assert sibling.kv.cached == len(shared)


def test_a_sibling_goes_on_when_the_one_it_waited_for_is_cancelled() -> None:
    rig = Rig(token_budget=16)
    shared = list(range(3 * STRIDE))
    first, sibling = rig.add([*shared, 90]), rig.add([*shared, 91])
    rig.step()
    rig.scheduler.remove(first)
    assert rig.step().admitted == [sibling]
    assert sibling.kv
    assert sibling.kv.cached == 16


def test_the_last_to_arrive_is_preempted_and_nobody_comes_in_until_one_leaves() -> None:
    rig = Rig(num_blocks=8, token_budget=16)
    first, second = rig.add([1] * 14, max_tokens=17), rig.add([2] * 14, max_tokens=17)
    preempted = []
    while not preempted:
        preempted = rig.step().preempted
    rig.add([3], max_tokens=1)
    assert preempted == [second]
    assert second.kv is None
    while first in rig.scheduler.running:
        assert rig.step().admitted == []
    assert rig.step().admitted
    rig.run()
    assert (first.preemptions, second.preemptions) == (0, 1)


def test_who_is_about_to_finish_is_spared() -> None:
    rig = Rig(num_blocks=8, token_budget=32)
    first, second = rig.add([1] * 13, max_tokens=19), rig.add([2] * 13, max_tokens=6)
    rig.run()
    assert (first.preemptions, second.preemptions) == (1, 0)


def test_admission_takes_blocks_for_the_whole_prompt() -> None:
    rig = Rig(num_blocks=8, token_budget=4)
    rig.add([1] * 20, max_tokens=1)
    rig.add([2] * 20, max_tokens=1)
    rig.step()
    assert len(rig.scheduler.running) == 1
    rig.run()
    assert not any(sequence.preemptions for sequence in rig.sequences)


prompts = st.builds(
    lambda shared, own: [*range(shared), *own],
    st.integers(0, 20),
    st.lists(st.integers(50, 52), min_size=1, max_size=12),
)
actions = st.one_of(
    st.tuples(st.just("add"), prompts, st.integers(1, 20)),
    st.tuples(st.just("cancel"), st.integers(0, 30), st.none()),
    st.tuples(st.just("step"), st.none(), st.none()),
)


@settings(max_examples=200)
@given(
    st.lists(actions, max_size=40),
    st.integers(14, 30),
    st.integers(1, 5),
    st.integers(5, 24),
)
def test_random_load_always_ends_and_leaks_nothing(
    script: list[tuple], num_blocks: int, max_running: int, token_budget: int
) -> None:
    rig = Rig(num_blocks, max_running, token_budget)
    for action, what, count in script:
        match action:
            case "add":
                rig.add(what, count)
            case "cancel" if what < len(rig.sequences):
                sequence = rig.sequences[what]
                if sequence in rig.scheduler.waiting or sequence in rig.scheduler.running:
                    rig.scheduler.remove(sequence)
            case "step" if rig.scheduler.waiting or rig.scheduler.running:
                assert rig.step().chunks
    rig.run()
    stats = rig.manager.stats()
    assert stats.running_blocks == 0
    assert all(sequence.overtaken <= MAX_OVERTAKEN for sequence in rig.sequences)
    assert sum(s.preemptions for s in rig.sequences) <= max_running * max(1, len(rig.sequences))
