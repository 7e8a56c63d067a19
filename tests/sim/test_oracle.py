"""What is found cached, against caches that are written down naively, where requests come alone."""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.ideal import ideal_cached
from sim.policy.base import Choice, Job, Policy
from sim.request import Content, Request, Trace
from sim.setting import Setting
from sim.simulation import Simulation
from tests.sim.small import BLOCK, STRIDE, content, known_tokens, played, setup, trace, traces
from tests.sim.trace.files import alike
from worker.kv.tokens import Tokens

ENDLESS = 10_000
APART = 20.0
"""Seconds, in which every request of a small trace ends."""

ALONE = traces(apart=APART)
Prefix = tuple[str, tuple[Hashable, ...]]


def full(request: Request) -> tuple[Hashable, ...]:
    """All tokens of a sequence when it has ended; those that nobody knows are its own."""
    known: tuple[Hashable, ...] = known_tokens(request)
    missing = request.prompt.tokens + request.output_tokens - len(known)
    return known + tuple((request.number, at) for at in range(missing))


def blocks(request: Request, tokens: Sequence[Hashable]) -> list[Prefix]:
    """The prefixes of `tokens` that end with a whole block, shortest first."""
    ends = range(BLOCK, len(tokens) + 1, BLOCK)
    return [(request.tenant, tuple(tokens[:end])) for end in ends]


class NaiveCache:
    """Blocks by their prefixes, with the request that used each last.

    Of those in use at the same time last, the longest goes first.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.evicted = 0
        self._used: dict[Prefix, int] = {}

    def serve(self, request: Request, *, generates: bool = True) -> int:
        """Tokens of the prompt that are there; afterwards it all is, but for the last token."""
        tokens = full(request)
        length = request.prompt.tokens
        prompt = blocks(request, tokens[:length])
        hit = next((at for at, each in enumerate(prompt) if each not in self._used), len(prompt))
        stored = len(tokens) - 1 if generates else length
        needed = max(length + 1 if generates else length, stored)
        self._make_room(ceil(needed / BLOCK), set(prompt[:hit]))
        self._used.update(dict.fromkeys(blocks(request, tokens[:stored]), request.number))
        return hit * BLOCK

    def _make_room(self, wanted: int, kept: set[Prefix]) -> None:
        others = {each: used for each, used in self._used.items() if each not in kept}
        while len(others) + wanted > self.capacity:
            victim = min(others, key=lambda each: (others[each], -len(each[1])))
            del others[victim], self._used[victim]
            self.evicted += 1


def serve(
    small: Trace, workers: Sequence[int], capacity: int, *, generates: bool = True
) -> tuple[list[int], int]:
    """What each request finds at its worker, and how many blocks go."""
    caches: dict[int, NaiveCache] = {}
    found = [
        caches.setdefault(worker, NaiveCache(capacity)).serve(request, generates=generates)
        for request, worker in zip(small.requests, workers, strict=True)
    ]
    return found, sum(cache.evicted for cache in caches.values())


@given(ALONE, st.integers(1, 3), st.sampled_from(["random", "cost", "session"]))
def test_with_endless_memory_all_that_a_worker_served_is_found_again(
    small: Trace, workers: int, policy: str
) -> None:
    run = played(small, Setting(setup(ENDLESS), workers, STRIDE), policy)
    expected, _ = serve(small, list(run.requests.worker), ENDLESS)
    assert list(run.requests.cached) == expected
    assert not run.workers.evicted_blocks.any()
    assert (run.requests.cached <= run.ideal_cached).all()


@given(ALONE, st.integers(1, 3), st.integers(10, 16))
def test_with_little_memory_the_least_recently_used_blocks_go(
    small: Trace, workers: int, capacity: int
) -> None:
    run = played(small, Setting(setup(capacity, eviction="lru"), workers, STRIDE), "random")
    expected, evicted = serve(small, list(run.requests.worker), capacity)
    assert list(run.requests.cached) == expected
    assert run.workers.evicted_blocks.sum() == evicted


@given(traces(most=20), st.integers(1, 3), st.integers(10, 16) | st.just(ENDLESS))
def test_workers_of_fixed_time_keep_prompts_alike(
    small: Trace, workers: int, capacity: int
) -> None:
    lru = setup(capacity, eviction="lru")
    setting = Setting(lru, workers, STRIDE, closed_loop=1, service_seconds=0.01)
    run = played(small, setting, "random")
    expected, evicted = serve(small, list(run.requests.worker), capacity, generates=False)
    assert list(run.requests.cached) == expected
    assert run.workers.evicted_blocks.sum() == evicted


@given(ALONE, st.integers(10, 30), st.integers(0, 10))
def test_more_memory_never_finds_less_when_the_least_recently_used_goes(
    small: Trace, capacity: int, more: int
) -> None:
    less, most = (
        played(small, Setting(setup(size, eviction="lru"), 1, STRIDE)).requests.cached
        for size in (capacity, capacity + more)
    )
    assert (less <= most).all()


class Clairvoyant(Policy):
    """Looks into the workers, and sends to the one that has most of a prompt."""

    def choose(self, job: Job) -> Choice:
        assert isinstance(self.site, Simulation)
        workers = self.site.workers
        tokens = Tokens(job.prompt.seed, self.site.stride, job.tenant)
        tokens.extend(job.prompt.packed)

        def held(index: int) -> int:
            return workers[index]._manager.cached_prefix(tokens)

        return Choice(self.site.places[max(range(len(workers)), key=held)].id)


@given(ALONE, st.integers(1, 4))
def test_the_ceiling_is_reached_by_perfect_routing_with_any_number_of_workers(
    small: Trace, workers: int
) -> None:
    prompts = Trace("prompts", [replace(each, output=None) for each in small.requests])
    run = played(prompts, Setting(setup(ENDLESS), workers, STRIDE), Clairvoyant)
    assert list(run.requests.cached) == list(run.ideal_cached)


@given(ALONE, st.integers(1, 3), st.integers(10, 40), st.sampled_from(["lru", "cost"]))
def test_no_run_finds_more_than_the_ceiling(
    small: Trace, workers: int, capacity: int, eviction: str
) -> None:
    setting = Setting(setup(capacity, eviction=eviction), workers, STRIDE)
    run = played(small, setting, "prefix_only")
    assert (run.requests.cached <= run.ideal_cached).all()


@st.composite
def any_traces(draw: st.DrawFn) -> Trace:
    """Requests in ids of any size."""
    size = draw(st.integers(1, 9))

    def some(most: int) -> Content:
        ids = draw(st.lists(st.integers(0, 1), min_size=1, max_size=most))
        short = draw(st.integers(0, size - 1))
        return content(ids, len(ids) * size - short, size)

    requests = []
    for number in range(draw(st.integers(1, 6))):
        prompt = some(8)
        output = some(3) if draw(st.booleans()) else None
        count = 1 if output is None else output.tokens
        tenant = draw(st.sampled_from(["", "t"]))
        requests.append(Request(number, 0.0, prompt, count, output, tenant=tenant))
    return Trace("any", requests)


@given(any_traces(), st.integers(1, 12))
def test_the_ceiling_is_what_any_request_before_has_in_common(
    small: Trace, block_size: int
) -> None:
    expected = []
    for at, request in enumerate(small.requests):
        before = [each for each in small.requests[:at] if each.tenant == request.tenant]
        found = max(
            (alike(known_tokens(each), known_tokens(request)) for each in before), default=0
        )
        expected.append(min(found, request.prompt.tokens) // block_size * block_size)
    assert list(ideal_cached(small, block_size)) == expected


@pytest.mark.parametrize("between", [content([1, 2]), content([1, 2, 3], 9)])
def test_an_id_stands_for_as_many_tokens_as_it_ever_has(between: Content) -> None:
    prompts = [content([1, 2], 7), between, content([1, 2, 4])]
    small = trace(*(Request(at, 0.0, prompt, 1) for at, prompt in enumerate(prompts)))
    assert list(ideal_cached(small, 1)) == [0, 7, 8]
