"""Blocks for generations: as many at once as can be, and else one by one as in single steps."""

from contextlib import nullcontext

from radixgate.namespace import NamespaceSeed
from radixgate.prefix import pack_tokens

from sim.worker.booking import Booking
from tests.engine.toys import request, toy_tokenizer
from worker.engine.output import OutputText
from worker.engine.sequence import Sequence, Times
from worker.kv.events import KvEvents
from worker.kv.manager import KVManager
from worker.kv.memory import MemoryPolicy
from worker.kv.policy import POLICIES
from worker.kv.tokens import Tokens

BLOCK = 2


def manager_of(blocks: int) -> KVManager:
    policy = MemoryPolicy(eviction=POLICIES["lru"], waiting_share=1.0)
    return KVManager(blocks, BLOCK, BLOCK, KvEvents(nullcontext()), policy)


def tokens_of(ids: list[int]) -> Tokens:
    tokens = Tokens(NamespaceSeed(1), BLOCK)
    tokens.extend(pack_tokens(ids))
    return tokens


def cache(manager: KVManager, ids: list[int]) -> None:
    tokens = tokens_of(ids)
    kv = manager.open(tokens, len(ids))
    assert kv
    manager.commit(kv, tokens, len(ids))
    manager.close(kv)


def running(manager: KVManager, prompt: list[int], order: int) -> Sequence:
    """With room for two tokens."""
    asked = request(prompt, 3)
    tokens, text = tokens_of(prompt), OutputText(toy_tokenizer(), asked)
    sequence = Sequence(asked, order, tokens, text, Times(0))
    sequence.kv = manager.open(tokens, 4)
    assert sequence.kv
    assert sequence.kv.room == BLOCK
    return sequence


def test_who_is_served_first_takes_what_nobody_waits_for() -> None:
    manager = manager_of(5)
    older, newer, waiting = [1, 1, 1, 1], [2, 2], tokens_of([1, 1, 1, 1, 1])
    cache(manager, older)
    cache(manager, newer)
    manager.look_up(waiting)
    assert manager.protected(waiting) == len(older)
    both = [running(manager, [3], 0), running(manager, [4], 1)]
    assert manager.stats().free_blocks == 0
    assert Booking(manager).take((each, BLOCK + 1) for each in both)
    assert [each.kv.room for each in both if each.kv] == [2 * BLOCK, 2 * BLOCK]
    assert manager.cached_prefix(tokens_of(newer)) == 0, "the first evicts what is not protected"
    assert manager.cached_prefix(waiting) == BLOCK, "and the second one block of what was"


def test_nobody_gets_any_where_there_are_too_few_for_all() -> None:
    manager = manager_of(3)
    cache(manager, [2, 2])
    both = [running(manager, [3], 0), running(manager, [4], 1)]
    assert not Booking(manager).take((each, BLOCK + 1) for each in both)
    assert [each.kv.room for each in both if each.kv] == [BLOCK, BLOCK]
    assert manager.cached_prefix(tokens_of([2, 2])) == BLOCK
