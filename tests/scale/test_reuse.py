"""Reuse distances against a list of all that was ever asked for."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from radixgate.prefix import PrefixHash

from gateway.scale.reuse import Reuse

STRIDE = 64
NAMES = [PrefixHash(chance) for chance in map(random.Random(1).getrandbits, [64] * 12)]


def caches(asked: list[PrefixHash], size: int) -> int:
    """Askings that a cache of `size` boundaries has lost, of those that came again."""
    held: list[PrefixHash] = []
    seen, lost = set(), 0
    for name in asked:
        lost += name in seen and name not in held
        seen.add(name)
        held = [other for other in held if other != name][-(size - 1) :] if size > 1 else []
        held.append(name)
    return lost


@given(
    asked=st.lists(st.lists(st.sampled_from(NAMES), unique=True), max_size=12),
    tolerated=st.integers(0, 6),
)
def test_the_working_set_is_the_smallest_cache_that_loses_what_is_tolerated(
    asked: list[list[PrefixHash]], tolerated: int
) -> None:
    reuse = Reuse(600.0)
    for at, names in enumerate(asked):
        reuse.asked(names, 0, STRIDE, at)
    found = reuse.working_set(tolerated * STRIDE, len(asked))
    everything = [name for names in asked for name in names]
    sizes = range(1, len(NAMES) + 1)
    smallest = next(size for size in sizes if caches(everything, size) <= tolerated)
    if smallest == 1 and not found:
        return
    # NOTE: distances are kept to within 5 %.
    assert smallest * STRIDE <= found * (1 + 1e-9)
    assert found <= max(smallest, 1) * STRIDE * 1.05


def test_what_is_never_asked_for_again_has_no_working_set() -> None:
    reuse, chance = Reuse(600.0), random.Random(2)
    for at in range(1000):
        reuse.asked([PrefixHash(chance.getrandbits(64)) for _ in range(20)], 0, STRIDE, at / 10)
    assert reuse.working_set(0.0, 100.0) == 0.0


@pytest.mark.parametrize("level", [1, 3])
def test_a_sample_tells_the_same_within_its_error(level: int) -> None:
    chance = random.Random(3)
    names = [PrefixHash(chance.getrandbits(64)) for _ in range(8_000)]
    below = 1 << (64 - level)
    reuse = Reuse(600.0)
    for at in range(3):
        reuse.asked([name for name in names if name < below], level, STRIDE, at)
    assert reuse.working_set(0.0, 3.0) == pytest.approx(len(names) * STRIDE, rel=0.12)


def test_gateways_that_sample_differently_are_all_read_as_sparsely_as_the_sparsest() -> None:
    chance = random.Random(4)
    names = [PrefixHash(chance.getrandbits(64)) for _ in range(8_000)]
    reuse = Reuse(600.0)
    for at, level in enumerate([0, 2, 0, 1]):
        reuse.asked([n for n in names if n < 1 << (64 - level)], level, STRIDE, at)
    assert reuse.working_set(0.0, 4.0) == pytest.approx(len(names) * STRIDE, rel=0.12)


def test_what_was_asked_for_long_ago_is_forgotten() -> None:
    reuse = Reuse(100.0)
    reuse.asked(NAMES, 0, STRIDE, 0.0)
    reuse.asked(NAMES, 0, STRIDE, 50.0)
    assert reuse.working_set(0.0, 100.0) > 0
    assert reuse.working_set(0.0, 151.0) == 0.0
    reuse.asked(NAMES, 0, STRIDE, 200.0)
    assert reuse.working_set(0.0, 200.0) == 0.0


def test_it_remembers_only_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.scale.reuse.REMEMBERED", 4)
    reuse = Reuse(math.inf)
    reuse.asked(NAMES[:5], 0, STRIDE, 0.0)
    reuse.asked([], 0, STRIDE, 1.0)
    reuse.asked([NAMES[0]], 0, STRIDE, 1.0)
    assert reuse.working_set(0.0, 1.0) == 0.0
    reuse.asked([NAMES[4]], 0, STRIDE, 1.0)
    assert reuse.working_set(0.0, 1.0) > 0
