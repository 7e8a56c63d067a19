"""The hash ring against a search for the nearest point."""

from collections import Counter

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from sim.policy.ring import HashRing

KEYS = st.integers(0, 2**64 - 1)
WORKERS = st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=6, unique=True)
POINTS = 5


def nearest(workers: list[str], key: int) -> str:
    ring = [
        (xxhash.xxh3_64_intdigest(f"{worker}#{point}".encode()), worker)
        for worker in workers
        for point in range(POINTS)
    ]
    return min(ring, key=lambda each: (each[0] - key) % 2**64)[1]


@given(workers=WORKERS, key=KEYS)
def test_a_key_belongs_to_the_next_point(workers: list[str], key: int) -> None:
    assert HashRing(workers, POINTS).worker(key) == nearest(workers, key)


@given(workers=WORKERS, key=KEYS)
def test_only_the_keys_of_a_worker_that_leaves_move(workers: list[str], key: int) -> None:
    before = HashRing(workers).worker(key)
    for gone in workers:
        rest = [worker for worker in workers if worker != gone]
        if rest:
            after = HashRing(rest).worker(key)
            assert after == before or before == gone


def test_keys_are_spread() -> None:
    ring = HashRing([f"worker-{index}" for index in range(8)])
    keys = [xxhash.xxh3_64_intdigest(b"%d" % number) for number in range(8000)]
    counts = Counter(map(ring.worker, keys))
    assert len(counts) == 8
    assert max(counts.values()) < 1.5 * 1000


def test_a_ring_without_workers_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one worker"):
        HashRing([])
