"""Blocks for generations: for all at once if that can be, and else in turn as in single steps."""

from contextlib import nullcontext

from radixgate.namespace import NamespaceSeed
from radixgate.prefix import pack_tokens

from sim.worker.booking import Booking
from sim.worker.generating import Generating
from tests.engine.toys import request, toy_tokenizer
from tests.sim.small import visit_of
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


def running(manager: KVManager, token: int) -> Sequence:
    """With room for two tokens."""
    asked = request([token], 3)
    tokens, text = tokens_of([token]), OutputText(toy_tokenizer(), asked)
    sequence = Sequence(asked, token, tokens, text, Times(0))
    sequence.kv = manager.open(tokens, 4)
    assert sequence.kv
    assert sequence.kv.room == BLOCK
    return sequence


def two_generate(manager: KVManager) -> tuple[Generating, list[Sequence]]:
    """Each has all the tokens that it has room for."""
    generating, both = Generating(BLOCK), [running(manager, 3), running(manager, 4)]
    for sequence in both:
        generating.join(sequence, visit_of(tokens=BLOCK, final=4))
    return generating, both


def test_who_is_served_first_takes_what_nobody_waits_for() -> None:
    manager = manager_of(5)
    older, newer, waiting = [1, 1, 1, 1], [2, 2], tokens_of([1, 1, 1, 1, 1])
    cache(manager, older)
    cache(manager, newer)
    manager.look_up(waiting)
    assert manager.protected(waiting) == len(older)
    generating, both = two_generate(manager)
    assert manager.stats().free_blocks == 0
    booking = Booking(manager, generating)
    generating.advance(1)
    assert not booking.take(0)
    assert booking.take_in_turn()
    assert [each.kv.room for each in both if each.kv] == [2 * BLOCK, 2 * BLOCK]
    assert manager.cached_prefix(tokens_of(newer)) == 0, "the first evicts what is not protected"
    assert manager.cached_prefix(waiting) == BLOCK, "and the second one block of what was"


def test_nobody_gets_any_where_there_are_too_few_for_all() -> None:
    manager = manager_of(3)
    cache(manager, [2, 2])
    generating, both = two_generate(manager)
    booking = Booking(manager, generating)
    generating.advance(1)
    assert not booking.take(0)
    assert not booking.take_in_turn()
    assert [each.kv.room for each in both if each.kv] == [BLOCK, BLOCK]
    assert manager.cached_prefix(tokens_of([2, 2])) == BLOCK
