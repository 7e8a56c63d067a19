"""Regret counts what came back, and forgets the oldest."""

from radixgate.prefix import PrefixHash

from worker.kv.regret import Regret

A, B, C = PrefixHash(1), PrefixHash(2), PrefixHash(3)


def test_counts_boundaries_that_come_back_once() -> None:
    regret = Regret(capacity=8, stride=64)
    regret.evicted([A, B], blocks=9)
    regret.stored([A, C])
    regret.stored([A])
    assert regret.evicted_blocks == 9
    assert regret.recomputed_tokens == 64


def test_forgets_the_oldest_beyond_its_capacity() -> None:
    regret = Regret(capacity=2, stride=64)
    regret.evicted([A, B], blocks=8)
    regret.evicted([A, C], blocks=8)
    regret.stored([B])
    assert regret.recomputed_tokens == 0
    regret.stored([A, C])
    assert regret.recomputed_tokens == 128
