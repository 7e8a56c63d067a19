"""The scheduler's promises, one by one and under random load on a pool that is too small."""

from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from radixgate.namespace import Namespace

from tests.engine.toys import BLOCK, STRIDE, manager, request, toy_tokenizer
from worker.engine import scheduler as module
from worker.engine.output import OutputText
from worker.engine.scheduler import TURN_OF_OLDEST, Scheduler, Step
from worker.engine.sequence import Sequence, Times
from worker.kv.manager import KVManager
from worker.kv.memory import DEFAULT_POLICY, MemoryPolicy
from worker.kv.shares import Share
from worker.kv.tokens import Tokens

TOKENIZER = toy_tokenizer()


class Rig:
    """A scheduler whose steps are carried out by bookkeeping alone, and checked."""

    def __init__(
        self,
        num_blocks: int = 32,
        max_running: int = 4,
        token_budget: int = 16,
        beside: int | None = None,
        policy: MemoryPolicy = DEFAULT_POLICY,
    ) -> None:
        self.manager: KVManager = manager(num_blocks, policy)
        self.scheduler = Scheduler(self.manager, max_running, token_budget)
        self.token_budget, self.max_running, self.beside = token_budget, max_running, beside
        self.sequences: list[Sequence] = []
        self.admitted: list[Sequence] = []
        self.patience: dict[Sequence, int] = {}

    def add(
        self, prompt: list[int], max_tokens: int = 5, priority: int = 0, tenant: str = ""
    ) -> Sequence:
        namespace = Namespace("model", tenant=tenant).seed()
        asked = request(prompt, max_tokens, priority=priority, namespace=namespace)
        tokens = Tokens(namespace, STRIDE, tenant)
        tokens.extend(asked.prompt)
        text = OutputText(TOKENIZER, asked)
        sequence = Sequence(asked, len(self.sequences), tokens, text, Times(0))
        self.sequences.append(sequence)
        self.scheduler.add(sequence)
        self.wait(sequence)
        return sequence

    def wait(self, sequence: Sequence) -> None:
        """It waits now: it may see so many admissions, and each older one grants it as many."""
        older = [other for other in self.scheduler.waiting if other.order <= sequence.order]
        self.patience[sequence] = len(self.admitted) + len(older) * module.TURN_OF_OLDEST

    def step(self) -> Step:
        before = list(self.scheduler.waiting)
        step = self.scheduler.schedule(self.beside)
        self.check_budgets(step)
        self.check_admissions(step, before)
        for victim in step.preempted:
            self.wait(victim)
            for younger in self.scheduler.waiting:
                if younger.order > victim.order:
                    self.patience[younger] += module.TURN_OF_OLDEST
        for sequence, start, stop, completes in step.chunks():
            assert sequence.kv
            assert start == len(sequence.tokens) - sequence.pending < stop <= len(sequence.tokens)
            assert completes == (stop == len(sequence.tokens))
            self.manager.commit(sequence.kv, sequence.tokens, stop)
            if completes:
                sequence.tokens.append((sequence.order * 7 + stop) % 50)
                if not sequence.tokens_left:
                    self.scheduler.remove(sequence)
        self.manager.check_integrity()
        return step

    def check_budgets(self, step: Step) -> None:
        assert sum(chunk.length for chunk in step.chunks()) <= self.token_budget
        assert len(self.scheduler.running) <= self.max_running
        assert len({chunk.sequence for chunk in step.chunks()}) == len(step.chunks())
        if self.beside is not None and not {*step.generating} <= {*step.admitted}:
            single = [chunk for chunk in step.chunks() if chunk.completes and chunk.length == 1]
            prompts = sum(chunk.length for chunk in step.chunks() if chunk not in single)
            assert prompts <= self.beside

    def check_admissions(self, step: Step, before: list[Sequence]) -> None:
        for sequence in step.admitted:
            self.admitted.append(sequence)
            before.remove(sequence)
            assert len(self.admitted) <= self.patience[sequence], "it waited too long"
            if len(self.admitted) % module.TURN_OF_OLDEST == 0:
                assert sequence.order < min((each.order for each in before), default=10**9)
            else:
                assert all(
                    each.kv or self.awaits_prefix(each)
                    for each in before
                    if each.request.priority > sequence.request.priority
                    and each.tokens.tenant == sequence.tokens.tenant
                )

    def awaits_prefix(self, sequence: Sequence) -> bool:
        def shared(other: Sequence) -> int:
            pairs = zip(other.tokens.hashes, sequence.tokens.hashes, strict=False)
            return sum(one == another for one, another in pairs) * STRIDE

        cached = self.manager.cached_prefix(sequence.tokens)
        computing = [each for each in self.scheduler.running if each.pending > 1]
        return any(shared(other) > cached for other in computing)

    def run(self, limit: int = 2000) -> int:
        steps = 0
        while self.scheduler.waiting or self.scheduler.running:
            assert self.step().chunks(), "a step without progress"
            steps += 1
            assert steps < limit, "no end"
        return steps


def sequences(step: Step) -> list[int]:
    return [chunk.sequence.order for chunk in step.chunks()]


def test_a_long_prompt_is_computed_in_chunks_of_the_budget() -> None:
    rig = Rig(token_budget=16)
    rig.add(list(range(40)))
    chunks = [[(c.start, c.stop, c.completes) for c in rig.step().chunks()] for _ in range(3)]
    assert chunks == [[(0, 16, False)], [(16, 32, False)], [(32, 40, True)]]


def test_who_gives_a_token_comes_before_a_long_prompt() -> None:
    rig = Rig(token_budget=16)
    rig.add([1, 2])
    rig.step()
    rig.add(list(range(10, 50)))
    step = rig.step()
    assert [(c.sequence.order, c.length) for c in step.chunks()] == [(0, 1), (1, 15)]


def test_a_fully_cached_prompt_computes_its_last_token_only() -> None:
    rig = Rig()
    prompt = list(range(3 * BLOCK))
    rig.add(prompt, max_tokens=1)
    rig.run()
    rig.add(prompt)
    assert [(c.start, c.stop) for c in rig.step().chunks()] == [(11, 12)]


def test_the_longest_cached_prefix_is_admitted_first() -> None:
    rig = Rig(max_running=1)
    rig.add(list(range(20)), max_tokens=1)
    rig.run()
    rig.add([90] * 20)
    warm = rig.add([*range(20), 5])
    assert rig.step().admitted == [warm]


def test_the_higher_priority_is_admitted_first_and_computed_first() -> None:
    rig = Rig(max_running=2, token_budget=16)
    rig.add(list(range(20)), max_tokens=1)
    rig.run()
    rig.add([*range(20), 5])
    low, high = rig.add([1] * 40, priority=-1), rig.add([2] * 40, priority=7)
    assert rig.step().admitted == [high]
    rig.scheduler.remove(rig.sequences[1])
    second = rig.step()
    assert sequences(second) == [high.order]
    third = rig.step()
    assert (sequences(third), third.admitted) == ([high.order, low.order], [low])


def test_of_unequal_priority_the_lower_is_preempted() -> None:
    rig = Rig(num_blocks=8, token_budget=32)
    low, high = rig.add([1] * 14, 17, priority=0), rig.add([2] * 14, 17, priority=1)
    rig.run()
    assert (low.preemptions, high.preemptions) == (1, 0)


def test_nobody_is_overtaken_for_ever() -> None:
    rig = Rig(max_running=1, num_blocks=64)
    rig.add(list(range(20)), max_tokens=1)
    rig.run()
    cold = rig.add([90] * 20, priority=-5)
    while cold in rig.scheduler.waiting:
        rig.add([*range(20), 5], max_tokens=1)
        rig.step()
    assert len(rig.admitted) == TURN_OF_OLDEST


def test_whose_turn_it_is_waits_for_its_prefix_and_nobody_goes_before() -> None:
    rig = Rig(max_running=TURN_OF_OLDEST + 1, num_blocks=64, token_budget=24)
    shared = list(range(3 * STRIDE))
    for index in range(TURN_OF_OLDEST - 2):
        rig.add([50 + index], max_tokens=1)
    rig.run()
    computing, sibling = rig.add([*shared, 90]), rig.add([*shared, 91], priority=-1)
    assert rig.step().admitted == [computing]
    other = rig.add([80], priority=1)
    step = rig.step()
    assert step.admitted == [sibling, other]
    assert sibling.kv
    assert sibling.kv.cached == len(shared)


def test_generations_are_delayed_by_no_more_prompt_than_allowed() -> None:
    rig = Rig(token_budget=16, beside=5)
    long = list(range(10, 40))
    rig.add(long)
    assert [chunk.length for chunk in rig.step().chunks()] == [16]
    rig.add([1, 2], priority=1)
    assert [chunk.length for chunk in rig.step().chunks()] == [14, 2]
    rig.add(long[::-1])
    assert [chunk.length for chunk in rig.step().chunks()] == [1, 1, 5]


def test_who_is_admitted_may_have_lost_its_prefix_to_one_just_before_it() -> None:
    rig = Rig(num_blocks=15, max_running=3, token_budget=6, beside=4)
    rig.add([*range(10), *[50] * 8], 8, 1)
    rig.add([0, 1, 50], 8, 1)
    rig.add([50] * 4, 1, 0)
    rig.add([*range(13), *[50] * 7], 3, 1)
    with patch.object(module, "TURN_OF_OLDEST", 2):
        rig.run()


def test_a_chunk_of_one_token_is_no_generation() -> None:
    rig = Rig(token_budget=4)
    rig.add([1, 2, 3, 4, 5])
    steps = [rig.step() for _ in range(3)]
    assert [[(c.start, c.stop) for c in step.prompts] for step in steps] == [[(0, 4)], [(4, 5)], []]
    assert [len(step.generating) for step in steps] == [0, 0, 1]


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


def test_a_tenant_that_grows_preempts_none_within_its_guarantee() -> None:
    shares = {"safe": Share(guaranteed=0.5), "burst": Share()}
    rig = Rig(policy=MemoryPolicy(shares=shares), num_blocks=16, token_budget=64)
    burst = [rig.add([index] * 14, 15, tenant="burst") for index in (1, 2)]
    safe = rig.add([3] * 14, 17, priority=-1, tenant="safe")
    rig.run()
    assert safe.preemptions == 0
    assert sum(each.preemptions for each in burst) == 1


def test_a_tenant_without_memory_holds_up_no_other() -> None:
    rig = Rig(policy=MemoryPolicy(shares={"small": Share(maximum=0.25)}))
    small = [rig.add([index] * 20, tenant="small") for index in (1, 2)]
    other = rig.add([3] * 20)
    rig.step()
    assert rig.step().admitted == [other]
    assert small[1].kv is None
    rig.run()


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
    st.tuples(st.just("add"), prompts, st.integers(1, 20), st.integers(-1, 1)),
    st.tuples(st.just("cancel"), st.integers(0, 30), st.none(), st.none()),
    st.tuples(st.just("step"), st.none(), st.none(), st.none()),
)


@settings(max_examples=300)
@given(
    script=st.lists(actions, max_size=40),
    num_blocks=st.integers(14, 30),
    max_running=st.integers(1, 5),
    token_budget=st.integers(5, 24),
    beside=st.none() | st.integers(1, 24),
    turn=st.integers(1, 5),
    shares=st.sampled_from([{}, {"a": Share(0.2, 0.9)}, {"a": Share(0.1), "*": Share(0, 0.8)}]),
)
def test_random_load_always_ends_and_leaks_nothing(
    script: list[tuple],
    num_blocks: int,
    max_running: int,
    token_budget: int,
    beside: int | None,
    turn: int,
    shares: dict[str, Share],
) -> None:
    rig = Rig(num_blocks, max_running, token_budget, beside, MemoryPolicy(shares=shares))
    with patch.object(module, "TURN_OF_OLDEST", turn):
        for action, what, count, priority in script:
            match action:
                case "add":
                    most = rig.manager.capacity(tenant := "a" if count % 3 == 0 else "")
                    rig.add(what, min(count, most - len(what)), priority, tenant)
                case "cancel" if what < len(rig.sequences):
                    sequence = rig.sequences[what]
                    if sequence in rig.scheduler.waiting or sequence in rig.scheduler.running:
                        rig.scheduler.remove(sequence)
                case "step" if rig.scheduler.waiting or rig.scheduler.running:
                    assert rig.step().chunks()
        rig.run()
    stats = rig.manager.stats()
    assert stats.running_blocks == 0
    assert sum(s.preemptions for s in rig.sequences) <= max_running * max(1, len(rig.sequences))
