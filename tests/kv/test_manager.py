"""Pool, tree, ledger and manager together, against a slow dictionary after every step."""

from contextlib import nullcontext
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from radixgate.namespace import NamespaceSeed
from radixgate.prefix import PrefixHash, pack_tokens, prefix_hash, unpack_tokens

from tests.kv.slow_cache import Prefix, Sequence, SlowCache
from worker.kv.events import KvEvents, Reason
from worker.kv.manager import KVManager, SequenceKV
from worker.kv.memory import MemoryPolicy
from worker.kv.misses import Misses
from worker.kv.pins import PinRefusedError
from worker.kv.policy import POLICIES, CostAware
from worker.kv.shares import OTHERS, Share
from worker.kv.tokens import Tokens

BLOCKS, BLOCK, STRIDE, MORE = 10, 2, 4, 6


class SmallCostAware(CostAware):
    """For lengths that a slow model can take."""

    FIRST_LENGTH, ATTENTION_TOKENS = 4, 16


def memory(policy: str) -> MemoryPolicy:
    return MemoryPolicy(
        eviction={**POLICIES, "cost": SmallCostAware}[policy],
        shares={"1": Share(0.3, 0.8), OTHERS: Share(0.0, 1.0)},
        pin_share=0.5,
        waiting_share=0.4,
    )


def tokens_of(seed: int, ids: list[int]) -> Tokens:
    tokens = Tokens(NamespaceSeed(seed), STRIDE, tenant=str(seed))
    tokens.extend(pack_tokens(ids))
    return tokens


def cached(manager: KVManager) -> set[tuple[int, bytes]]:
    """The packed tokens of every prefix of whole blocks in the tree."""
    prefixes = set[tuple[int, bytes]]()
    for seed, root in manager._tree._roots.items():
        before = {root: b""}
        for node in root.below():
            assert node.parent
            start, before[node] = before[node.parent], before[node.parent] + node.edge
            ends = range(len(start), len(before[node]), 4 * BLOCK)
            prefixes |= {(seed, before[node][: end + 4 * BLOCK]) for end in ends}
    return prefixes


@dataclass(eq=False)
class Running:
    tokens: Tokens
    final: int
    kv: SequenceKV
    slow: Sequence


class ManagerMachine(RuleBasedStateMachine):
    """`memory` stands for the real one: in each slot, the prefix whose KV was written there.

    Seed 1 is a tenant with a share, seed 2 one without.
    """

    policy = "cost"

    def __init__(self) -> None:
        super().__init__()
        self.events = KvEvents(nullcontext())
        self.manager = KVManager(BLOCKS, BLOCK, STRIDE, self.events, memory(self.policy))
        self.slow = SlowCache(
            BLOCKS,
            BLOCK,
            guaranteed={1: 3, 2: 0},
            maximum={1: 8, 2: 10},
            pin_guaranteed={1: 1, 2: 0},
            pin_maximum={1: 4, 2: 5},
            pin_limit=5,
            waiting_limit=4,
            policy=self.policy,
        )
        self.waiting: list[tuple[Tokens, int, list[int]]] = []
        self.now = 0.0
        self.running: list[Running] = []
        self.memory: dict[int, Prefix] = {}
        self.reported: set[PrefixHash] = set()

    def slot(self, kv: SequenceKV, position: int) -> int:
        return kv.blocks[position // BLOCK] * BLOCK + position % BLOCK

    @rule(
        seed=st.integers(1, 2),
        ids=st.lists(st.integers(0, 1), min_size=1, max_size=17),
        hit=st.booleans(),
    )
    def open(self, seed: int, ids: list[int], hit: bool) -> None:
        self.admit(tokens_of(seed, ids), seed, ids, hit=hit)

    def admit(self, tokens: Tokens, seed: int, ids: list[int], *, hit: bool = True) -> bool:
        final, most = len(ids) + MORE, self.slow.capacity(seed) * BLOCK
        if final > most:
            with pytest.raises(ValueError, match=f"up to {final} tokens .* holds {most}"):
                self.manager.open(tokens, final)
            return False
        matched = self.slow.matched(seed, ids)
        assert self.manager.cached_prefix(tokens) == matched * BLOCK
        diverges = self.slow.diverges(seed, ids)
        slow = self.slow.open(seed, ids, len(ids) + 1, hit=hit)
        kv = self.manager.open(tokens, final, hit=hit)
        assert (kv is None) == (slow is None)
        if kv and slow:
            assert kv.cached == kv.stored == matched * BLOCK
            assert kv.cached + kv.misses.tokens == len(ids)
            assert kv.misses.diverges == diverges
            self.running.append(Running(tokens, final, kv, slow))
        return kv is not None

    @rule(seed=st.integers(1, 2), ids=st.lists(st.integers(0, 1), min_size=2, max_size=12))
    def serve(self, seed: int, ids: list[int]) -> None:
        """A whole request at once, which is what fills the cache."""
        if self.admit(tokens_of(seed, ids), seed, ids):
            self.store(self.running[-1], len(ids))
            self.end(self.running[-1])

    @rule(seed=st.integers(1, 2), ids=st.lists(st.integers(0, 1), min_size=1, max_size=9))
    def wait(self, seed: int, ids: list[int]) -> None:
        tokens = tokens_of(seed, ids)
        self.waiting.append((tokens, seed, ids))
        assert self.manager.look_up(tokens) == self.slow.look_up(seed, ids) * BLOCK

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), what=st.sampled_from(["look up", "stop waiting", "open"]))
    def go_on_waiting(self, data: st.DataObject, what: str) -> None:
        one = data.draw(st.sampled_from(self.waiting))
        tokens, seed, ids = one
        if what == "look up":
            assert self.manager.look_up(tokens) == self.slow.look_up(seed, ids) * BLOCK
        elif what == "stop waiting":
            self.manager.stop_waiting(tokens)
            self.slow.stop_waiting(ids)
            self.waiting.remove(one)
        elif self.admit(tokens, seed, ids):
            self.waiting.remove(one)

    @rule(seed=st.integers(1, 2), ids=st.lists(st.integers(0, 1), max_size=13), ttl=st.just(3))
    def pin(self, seed: int, ids: list[int], ttl: float) -> None:
        tokens = tokens_of(seed, ids)
        self.slow.expire(self.now)
        pinned = self.slow.pin(seed, ids, self.now + ttl)
        if pinned is None:
            who = "tenant '1'" if seed == 1 else "tenants without a share"
            with pytest.raises(PinRefusedError, match=f"pins of {who} hold . blocks and may hold"):
                self.manager.pin(tokens, self.now, ttl)
        else:
            assert self.manager.pin(tokens, self.now, ttl) == pinned

    @rule(seed=st.integers(1, 2), ids=st.lists(st.integers(0, 1), max_size=9))
    def unpin(self, seed: int, ids: list[int]) -> None:
        assert self.manager.unpin(tokens_of(seed, ids)) == self.slow.unpin(seed, ids)

    @rule()
    def pass_time(self) -> None:
        self.now += 1
        self.manager.expire(self.now)
        self.slow.expire(self.now)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), most=st.integers(1, 9))
    def compute(self, data: st.DataObject, most: int) -> None:
        one = data.draw(st.sampled_from(self.running))
        self.store(one, min(one.kv.stored + most, len(one.tokens)))

    def store(self, one: Running, stored: int) -> None:
        for position in range(one.kv.stored, stored):
            prefix = one.slow.seed, tuple(one.slow.ids[: position + 1])
            self.memory[self.slot(one.kv, position)] = prefix
        self.manager.commit(one.kv, one.tokens, stored)
        self.slow.commit(one.slow, stored)
        assert one.kv.stored == stored

    @precondition(lambda self: self.running)
    @rule(data=st.data(), token=st.integers(0, 1))
    def decode(self, data: st.DataObject, token: int) -> None:
        one = data.draw(st.sampled_from(self.running))
        if len(one.tokens) == one.final:
            return
        fits = self.slow.grow(one.slow, len(one.tokens) + 1)
        assert self.manager.grow(one.kv, len(one.tokens) + 1) == fits
        if fits:
            one.tokens.append(token)
            one.slow.ids.append(token)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), token=st.integers(0, 1))
    def decode_together(self, data: st.DataObject, token: int) -> None:
        seed = data.draw(st.sampled_from(self.running)).slow.seed
        of_seed = [one for one in self.running if one.slow.seed == seed]
        growing = [one for one in of_seed if data.draw(st.booleans())]
        more = {one: data.draw(st.integers(0, one.final - len(one.tokens))) for one in growing}
        lengths = {one: len(one.tokens) + tokens for one, tokens in more.items()}
        lacking = {
            one: self.manager.lacking(one.kv, length)
            for one, length in lengths.items()
            if length > one.kv.room
        }
        before = [len(one.kv.blocks) for one in growing]
        fits = self.slow.grow_all([(one.slow, length) for one, length in lengths.items()])
        if lacking:
            assert self.manager.reserve(sum(lacking.values()), growing[0].kv) == fits
        self.manager.check_integrity()
        assert before == [len(one.kv.blocks) for one in growing], "given without being asked for"
        for one, tokens in more.items() if fits else ():
            if blocks := lacking.get(one):
                self.manager.give(one.kv, blocks)
            one.tokens.extend(pack_tokens([token] * tokens))
            one.slow.ids.extend([token] * tokens)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        self.end(data.draw(st.sampled_from(self.running)))

    def end(self, one: Running) -> None:
        self.running.remove(one)
        self.manager.close(one.kv)
        self.manager.close(one.kv)
        self.slow.close(one.slow)
        assert not len(one.kv.blocks)

    @rule()
    def clear(self) -> None:
        self.manager.clear()
        self.slow.clear()

    @rule()
    def report(self) -> None:
        change = self.events.take()
        if change:
            removed = {name for names in change.removed.values() for name in names}
            self.reported = (self.reported | set(change.stored)) - removed
        assert self.reported == {
            prefix_hash(pack_tokens(ids), len(ids), NamespaceSeed(seed))
            for seed, ids in self.slow.left
            if len(ids) % STRIDE == 0
        }

    @invariant()
    def agrees(self) -> None:
        self.manager.check_integrity()
        for tokens, _, _ in self.waiting:
            anew = self.manager._tree.match(tokens)
            assert self.manager._waiting.match(tokens) == anew, "what was found before misleads"
        assert cached(self.manager) == {(seed, pack_tokens(ids)) for seed, ids in self.slow.left}
        stats = self.manager.stats()
        assert stats.total_blocks == BLOCKS
        assert stats.free_blocks == self.slow.free()
        running, pinned = self.slow.run_over(), self.slow.pinned()
        assert stats.pinned_blocks == len(pinned - running)
        assert len(pinned) + max(0, 1 - sum(seed == 1 for seed, _ in pinned)) <= 5
        assert stats.cached_blocks == len(set(self.slow.left) - running - pinned)
        idle = stats.free_blocks + stats.cached_blocks + stats.pinned_blocks
        assert idle + stats.running_blocks == BLOCKS
        assert stats.evicted_blocks == self.slow.evicted
        assert stats.allocated_tokens == (BLOCKS - self.slow.free()) * BLOCK
        private = [one.kv.stored - one.slow.shared * BLOCK for one in self.running]
        assert stats.used_tokens == len(self.slow.left) * BLOCK + sum(private)

    @rule(most=st.integers(0, BLOCK * BLOCKS))
    def list_the_hottest(self, most: int) -> None:
        """Block by block: of each prefix its heat, none before a shorter one, none hotter later."""
        listed: list[Prefix] = []
        whole: list[Prefix] = []
        for seed, heat, extends, edge in self.manager.hottest(most):
            before = whole[extends - 1] if extends else (seed, ())
            assert before[0] == seed
            ids = before[1] + tuple(unpack_tokens(edge))
            ends = range(len(before[1]) + BLOCK, len(ids) + 1, BLOCK)
            listed += [(seed, ids[:end]) for end in ends]
            whole.append((seed, ids))
            assert heat == pytest.approx(self.slow.heat((seed, ids)))
        heats = {prefix: self.slow.heat(prefix) for prefix in self.slow.left}
        hot = sorted((heat for heat in heats.values() if heat), reverse=True)
        assert len(set(listed)) == len(listed) == min(most // BLOCK, len(hot))
        assert [heats[prefix] for prefix in listed] == pytest.approx(hot[: len(listed)])

    @invariant()
    def every_sequence_reads_its_own_prefix(self) -> None:
        for one in self.running:
            assert len(one.kv.blocks) == one.slow.shared + one.slow.private
            for position in range(one.kv.stored):
                prefix = one.slow.seed, tuple(one.slow.ids[: position + 1])
                assert self.memory[self.slot(one.kv, position)] == prefix


class LruMachine(ManagerMachine):
    policy = "lru"


TestManager = ManagerMachine.TestCase
TestLruManager = LruMachine.TestCase
for case in (TestManager, TestLruManager):
    case.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


@pytest.fixture
def manager() -> KVManager:
    return KVManager(BLOCKS, BLOCK, STRIDE, KvEvents(nullcontext()))


def run(manager: KVManager, ids: list[int], seed: int = 1, *, hit: bool = True) -> None:
    """Compute `ids` as one sequence, and leave them cached."""
    tokens = tokens_of(seed, ids)
    kv = manager.open(tokens, len(ids) + 1, hit=hit)
    assert kv
    manager.commit(kv, tokens, len(ids))
    manager.close(kv)


def test_a_fully_cached_prompt_has_everything_stored_and_room_for_one_more(
    manager: KVManager,
) -> None:
    run(manager, [1, 2, 3, 4])
    kv = manager.open(tokens_of(1, [1, 2, 3, 4]), 5)
    assert kv
    assert kv.stored == kv.cached == 4
    assert len(kv.blocks) == 3


def test_who_exceeded_its_maximum_gives_back_more_than_it_asks_for() -> None:
    shares = {"1": Share(0.0, 0.5)}
    manager = KVManager(BLOCKS, BLOCK, STRIDE, KvEvents(nullcontext()), MemoryPolicy(shares=shares))
    tokens = [tokens_of(1, [which, 2]) for which in (1, 2)]
    first, second = (manager.open(each, 10) for each in tokens)
    assert first
    assert second
    for kv, each in zip((first, second), tokens, strict=True):
        assert manager.grow(kv, 8)
        each.extend(pack_tokens([3] * 6))
        manager.commit(kv, each, 8)
    manager.close(first)
    manager.close(second)
    assert manager.stats().free_blocks == 2
    third = manager.open(tokens_of(1, [4]), 2)
    assert third
    assert len(third.blocks) == 1
    manager.check_integrity()
    assert manager.stats().free_blocks == 5


def test_namespaces_share_nothing(manager: KVManager) -> None:
    run(manager, [1, 2, 3, 4], seed=1)
    assert manager.cached_prefix(tokens_of(2, [1, 2, 3, 4])) == 0


def test_a_running_prompt_is_shareable_and_duplicates_go_back(manager: KVManager) -> None:
    first, second = tokens_of(1, [1, 2, 3, 4]), tokens_of(1, [1, 2, 3, 4])
    a, b = manager.open(first, 6), manager.open(second, 6)
    assert a
    assert b
    manager.commit(a, first, 2)
    assert manager.cached_prefix(second) == 2
    manager.commit(a, first, 4)
    free = manager.stats().free_blocks
    manager.commit(b, second, 4)
    assert b.blocks[:2] == a.blocks[:2]
    assert manager.stats().free_blocks == free + 2


def test_what_left_first_is_evicted_first_and_from_its_tail() -> None:
    manager = KVManager(6, BLOCK, STRIDE, KvEvents(nullcontext()))
    run(manager, [1, 1, 1, 1, 1, 1])
    run(manager, [2, 2, 2, 2])
    run(manager, [3, 3])
    assert manager.cached_prefix(tokens_of(1, [1] * 6)) == 4
    assert manager.cached_prefix(tokens_of(1, [2] * 4)) == 4
    assert manager.cached_prefix(tokens_of(1, [3] * 2)) == 2


def test_who_waits_is_not_misled_by_another_that_takes_the_place_of_its_prefix() -> None:
    """The tail of what was found goes, and the same leaf goes on with other tokens."""
    policy = MemoryPolicy(waiting_share=0.0)
    manager = KVManager(9, BLOCK, STRIDE, KvEvents(nullcontext()), policy)
    waits = tokens_of(1, [1] * 12)
    run(manager, [1] * 12, hit=False)
    assert manager.look_up(waits) == 12
    run(manager, [2] * 12, hit=False)
    assert manager.cached_prefix(waits) == 4
    run(manager, [1] * 4 + [3] * 8, hit=False)
    assert manager.look_up(waits) == 4
    assert manager.cached_prefix(waits) == 4


def test_evicted_and_recomputed_tokens_are_regret() -> None:
    manager = KVManager(3, BLOCK, STRIDE, KvEvents(nullcontext()))
    for _ in range(2):
        run(manager, [1] * 4)
        run(manager, [2] * 4)
    stats = manager.stats()
    assert stats.evicted_blocks == 6
    assert stats.recomputed_tokens == 2 * STRIDE


def test_removals_say_why() -> None:
    events = KvEvents(nullcontext())
    manager = KVManager(3, BLOCK, STRIDE, events)
    run(manager, [1] * 4)
    events.take()
    run(manager, [2] * 4)
    evicted = events.take()
    manager.clear()
    cleared = events.take()
    assert evicted
    assert cleared
    assert list(evicted.removed) == [Reason.CAPACITY]
    assert list(cleared.removed) == [Reason.CLEARED]


def test_a_miss_is_new_evicted_or_elsewhere() -> None:
    manager = KVManager(8, BLOCK, STRIDE, KvEvents(nullcontext()))

    def misses(ids: list[int], seed: int, tenant: str = "t") -> Misses:
        tokens = Tokens(NamespaceSeed(seed), STRIDE, tenant)
        tokens.extend(pack_tokens(ids))
        kv = manager.open(tokens, len(ids) + 1)
        assert kv
        manager.commit(kv, tokens, len(ids))
        manager.close(kv)
        assert kv.cached + kv.misses.tokens == len(ids)
        return kv.misses

    eight = [1, 2, 3, 4, 5, 6, 7, 8]
    assert misses(eight, seed=1) == Misses(new=8, evicted=0, elsewhere=0, diverges=0)
    # The tail that is no whole boundary is new, whatever it is.
    assert misses([*eight[:6], 9], seed=1) == Misses(1, 0, 0, diverges=6)
    assert misses([*eight[:4], 5, 9], seed=1) == Misses(2, 0, 0, diverges=5)
    assert misses(eight[:5], seed=2) == Misses(1, 0, 4, diverges=0)
    # Another tenant's cache is never told of.
    assert misses([9] * 8, seed=3, tenant="u").elsewhere == 0
    assert misses(eight, seed=4, tenant="u") == Misses(8, 0, 0, diverges=0)
    assert manager.cached_prefix(tokens_of(1, eight)) < 8
    assert misses(eight, seed=1).evicted > 0


def flood(manager: KVManager, tenant: str, number: int) -> None:
    """A prompt of a tenant that nobody has sent before."""
    tokens = Tokens(NamespaceSeed(9), STRIDE, tenant)
    tokens.extend(pack_tokens([number] * 8))
    kv = manager.open(tokens, 9)
    assert kv
    manager.commit(kv, tokens, 8)
    manager.close(kv)


def hit_rate(manager: KVManager, floods: int) -> float:
    """Of a tenant that sends 8 prompts of 8 tokens in turn, while another floods the memory."""
    cached = 0
    for turn in range(80):
        tokens = Tokens(NamespaceSeed(1), STRIDE, "polite")
        tokens.extend(pack_tokens([turn % 8] * 8))
        kv = manager.open(tokens, 9)
        assert kv
        cached += kv.cached
        manager.commit(kv, tokens, 8)
        manager.close(kv)
        for number in range(floods):
            flood(manager, "flooding", turn * floods + number)
    return cached / (80 * 8)


def test_a_flooding_tenant_takes_nothing_of_what_another_is_guaranteed() -> None:
    policy = MemoryPolicy(shares={"polite": Share(0.5)})
    alone = hit_rate(KVManager(80, BLOCK, STRIDE, KvEvents(nullcontext()), policy), 0)
    flooded = hit_rate(KVManager(80, BLOCK, STRIDE, KvEvents(nullcontext()), policy), 20)
    unprotected = hit_rate(KVManager(80, BLOCK, STRIDE, KvEvents(nullcontext())), 20)
    assert alone == 0.9
    assert flooded >= alone - 0.05
    assert unprotected < 0.5, "this flood would not have harmed"


def test_idle_memory_may_be_used_beyond_a_guarantee_but_not_beyond_the_maximum() -> None:
    shares = {"polite": Share(0.5), "flooding": Share(0.0, 0.75)}
    manager = KVManager(40, BLOCK, STRIDE, KvEvents(nullcontext()), MemoryPolicy(shares=shares))
    for number in range(20):
        flood(manager, "flooding", number)
    stats = manager.stats()
    assert stats.cached_blocks == 30 - 1
    assert manager.capacity("flooding") == 20 * BLOCK
    assert manager.capacity("polite") == 40 * BLOCK


def test_guarantees_must_leave_something_for_everyone() -> None:
    shares = {"a": Share(0.5), "b": Share(0.5)}
    with pytest.raises(ValueError, match=r"10 of 10 KV blocks are guaranteed.*none for '\*'"):
        KVManager(10, BLOCK, STRIDE, KvEvents(nullcontext()), MemoryPolicy(shares=shares))


def test_a_tenant_can_always_pin_what_it_is_guaranteed_of_the_pins() -> None:
    shares = {"1": Share(0.2), "2": Share(0.0, 0.5), "3": Share(0.2)}
    policy = MemoryPolicy(shares=shares, pin_share=0.5)
    manager = KVManager(40, BLOCK, STRIDE, KvEvents(nullcontext()), policy)

    def pinned(seed: int) -> int:
        """Blocks of as many pins of one block as a tenant gets."""
        for first in range(40):
            run(manager, [first] * BLOCK, seed)
            try:
                manager.pin(tokens_of(seed, [first] * BLOCK), now=0, ttl=1)
            except PinRefusedError:
                return first
        raise AssertionError("pins are not bounded")

    assert pinned(2) == 10, "its maximum, of 20 for pins"
    assert pinned(9) == 20 - 10 - 4 - 4, "tenants without a share have what is left"
    assert pinned(9) == 20 - 10 - 4 - 4, "and nothing more"
    assert (pinned(1), pinned(3)) == (4, 4)


def test_who_is_refused_a_pin_is_told_of_its_own(manager: KVManager) -> None:
    with pytest.raises(
        PinRefusedError, match=r"needs 3 more; pins of all tenants hold 0 .* hold 2; unpin .*pin-sh"
    ):
        manager.pin(tokens_of(1, [1] * 6), now=0, ttl=9)
    shared = KVManager(BLOCKS, BLOCK, STRIDE, KvEvents(nullcontext()), memory("lru"))
    run(shared, [1, 1], seed=2)
    shared.pin(tokens_of(2, [1, 1]), now=0, ttl=9)
    with pytest.raises(PinRefusedError, match=r"of tenant '1' hold 0 blocks and may hold 4; unpin"):
        shared.pin(tokens_of(1, [1] * 10), now=0, ttl=9)
    with pytest.raises(
        PinRefusedError, match=r"without a share hold 1 .* hold 4; the next of them ends in 7"
    ):
        shared.pin(tokens_of(2, [1] * 10), now=2, ttl=9)


def test_stride_must_be_whole_blocks() -> None:
    with pytest.raises(ValueError, match="stride 5 is not a multiple of block size 2"):
        KVManager(4, 2, 5, KvEvents(nullcontext()))
