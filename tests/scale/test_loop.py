"""Scaling in a closed loop: caches that evict, workers that take time to come, and no chance
that is not seeded."""

import random
from collections import OrderedDict
from functools import partial

import xxhash
from radixgate.prefix import PrefixHash, pack_hashes
from radixgate.v1.demand_pb2 import Demand

from gateway.scale.desired import desired_workers
from gateway.scale.signals import TOLERATED, Signals, read
from gateway.scale.window import Entry, Spans, Window

STRIDE = 64
BOUNDARIES = 10
"""Of each prompt."""

PROMPTS = 20
"""That a worker holds."""

EVERY, REQUESTS = 2.0, 20
"""Seconds between entries, and requests in each of them."""

POLL, START = 16.0, 40.0
"""Seconds between askings for the size, and until a new worker takes requests."""


class Pool:
    def __init__(self, size: int) -> None:
        self.window = Window(Spans(300.0))
        self.now = 0.0
        self.caches: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(size)]
        self.starting: list[float] = []
        self.sizes: list[int] = []
        self._chance = random.Random(5)
        self._seen: set[int] = set()
        self._number = 0

    def run(self, prompts: range, seconds: float) -> list[int]:
        """Ask for `prompts` at random; the sizes that were set meanwhile."""
        first = len(self.sizes)
        for _ in range(int(seconds / EVERY)):
            self.now += EVERY
            ready = [at for at in self.starting if at <= self.now]
            self.caches += [OrderedDict() for _ in ready]
            self.starting = [at for at in self.starting if at > self.now]
            self.window.add(Entry(self.now, self._serve(prompts)))
            if self.now % POLL == 0:
                self._scale()
        return self.sizes[first:]

    def signals(self) -> Signals:
        size = len(self.caches) + len(self.starting)
        return read(self.window, self._workers(), size, self.now)

    def _scale(self) -> None:
        desired = desired_workers(self.signals())
        self.sizes.append(desired)
        size = len(self.caches) + len(self.starting)
        self.starting += [self.now + START] * (desired - size)
        if desired < size:
            del self.caches[max(1, len(self.caches) - (size - desired)) :]

    def _serve(self, prompts: range) -> Demand:
        self._number += 1
        demand = Demand(gateway="g", number=self._number, requests=REQUESTS, stride=STRIDE)
        demand.MergeFrom(self._workers())
        sample: list[PrefixHash] = []
        tokens = BOUNDARIES * STRIDE
        for prompt in self._chance.choices(prompts, k=REQUESTS):
            cache = self.caches[max(range(len(self.caches)), key=partial(_hash, prompt))]
            demand.prompt_tokens += tokens
            if prompt in cache:
                demand.cached_tokens += tokens
                cache.move_to_end(prompt)
            else:
                demand.evicted_tokens += tokens * (prompt in self._seen and not self._held(prompt))
                cache[prompt] = None
                if len(cache) > PROMPTS:
                    cache.popitem(last=False)
            self._seen.add(prompt)
            sample += [_hash(prompt, at) for at in range(BOUNDARIES)]
        demand.sample = pack_hashes(sample)
        return demand

    def _held(self, prompt: int) -> bool:
        return any(prompt in cache for cache in self.caches)

    def _workers(self) -> Demand:
        workers = len(self.caches)
        return Demand(
            workers=workers,
            kv_tokens=workers * PROMPTS * BOUNDARIES * STRIDE,
            blocks=workers * 1000,
            used_blocks=workers * 100,
            slots=workers * 64,
            used_slots=workers,
            prefill_tokens_per_second=workers * 1e6,
        )


def _hash(prompt: int, at: int) -> PrefixHash:
    return PrefixHash(xxhash.xxh3_64_intdigest(str(prompt).encode(), at))


def test_the_pool_follows_its_working_set_up_and_down_without_flapping() -> None:
    pool = Pool(2)
    assert set(pool.run(range(30), 320)) == {2}
    rising = pool.run(range(100), 640)
    assert rising == sorted(rising)
    assert 6 <= rising[-1] <= 8
    assert len(set(rising[-20:])) == 1
    assert pool.signals().evicted_share <= TOLERATED
    falling = pool.run(range(25), 800)
    assert falling == sorted(falling, reverse=True)
    assert falling[-1] == 2
    assert len(set(falling[-20:])) == 1
    assert pool.signals().evicted_share <= TOLERATED


def test_a_stream_of_new_prompts_does_not_make_it_grow() -> None:
    pool = Pool(2)
    sizes: list[int] = []
    for at in range(30):
        sizes += pool.run(range(1000 * at, 1000 * at + 900), 16)
    assert set(sizes) == {2} or sizes == sorted(sizes, reverse=True)
