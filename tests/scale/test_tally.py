"""What a gateway counts, and what it makes of workers."""

import random
from dataclasses import replace

import pytest
from radixgate.namespace import NamespaceSeed
from radixgate.prefix import PrefixHash, pack_tokens, unpack_hashes
from radixgate.v1.sync_pb2 import Load

from gateway.fleet.worker import FleetWorker, Life
from gateway.route.outcome import Outcome, Promise
from gateway.route.router import Prompt
from gateway.scale.signals import read
from gateway.scale.tally import MOST, NEAR, SAMPLE_LIMIT, SAMPLES_PER_WORKER, Tally, count
from gateway.scale.window import Spans, Window
from gateway.summary.events import Registration

STRIDE = 4
LOAD = Load(
    max_running=8,
    running=2,
    waiting=1,
    free_blocks=50,
    cached_blocks=30,
    total_blocks=100,
    prefill_tokens_per_second=1000.0,
    backlog_tokens=7,
)


def worker(blocks: int = 100, load: Load | None = LOAD) -> FleetWorker:
    registration = Registration("w", 1, "h:1", "m", "f", 16, STRIDE, blocks)
    return FleetWorker(registration, 1.0, 0.0, None, load=load)


def prompt(number: int, boundaries: int = 10) -> Prompt:
    ids = random.Random(number).choices(range(1000), k=boundaries * STRIDE)
    return Prompt(pack_tokens(ids), STRIDE, NamespaceSeed(1))


def outcome(name: str, tokens: int, cached: int, evicted: int) -> Outcome:
    promise = Promise(
        Life("m", name, 1), tokens, cached, PrefixHash(0), cached, 0, cached + evicted, True, 0.0
    )
    return Outcome(promise, cached)


def test_each_thing_is_counted_once() -> None:
    tally = Tally("g")
    tally.entered(prompt(1), 0.5)
    tally.refused(2.0)
    tally.settled(outcome("a", 100, 60, 30))
    tally.settled(outcome("b", 50, 0, 0))
    tally.settled(outcome("a", 10, 10, 0))
    first = tally.take([worker()], 3, 4.5)
    assert (first.gateway, first.number) == ("g", 1)
    assert (first.requests, first.waited_seconds) == (2, 2.5)
    assert (first.waiting, first.waiting_seconds) == (3, 4.5)
    assert (first.prompt_tokens, first.cached_tokens, first.evicted_tokens) == (160, 70, 30)
    assert dict(first.served_tokens) == {"a": 70}
    assert unpack_hashes(first.sample) == prompt(1).boundaries[:]
    assert (first.level, first.stride, first.workers) == (0, STRIDE, 1)
    second = tally.take([], 0, 0.0)
    assert second.number == 2
    assert (second.requests, second.prompt_tokens, second.sample) == (0, 0, b"")
    assert not second.served_tokens


def test_a_boundary_is_sampled_again_only_after_others() -> None:
    tally = Tally("g")
    for _ in range(3):
        tally.entered(prompt(1), 0.0)
    others = NEAR // 10 + 1
    for number in range(2, 2 + others):
        tally.entered(prompt(number), 0.0)
    tally.entered(prompt(1), 0.0)
    sample = unpack_hashes(tally.take([], 0, 0.0).sample)
    assert sample[:10] == sample[-10:] == prompt(1).boundaries[:]
    assert len(sample) == 10 * (2 + others)


def test_the_sample_is_as_sparse_as_the_largest_worker_allows() -> None:
    tally, large = Tally("g"), worker(blocks=SAMPLES_PER_WORKER * STRIDE * 5 // 16)
    assert tally.take([worker(), large], 0, 0.0).level == 0
    asked = [prompt(number, 100) for number in range(20)]
    for each in asked:
        tally.entered(each, 0.0)
    demand = tally.take([worker(), large], 0, 0.0)
    names = [name for each in asked for name in each.boundaries[:]]
    assert demand.level == 2
    assert unpack_hashes(demand.sample) == [name for name in names if name < 1 << 62]


def test_a_sample_that_is_too_large_becomes_sparser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.scale.tally.SAMPLE_LIMIT", 64)
    assert SAMPLE_LIMIT > 64
    tally = Tally("g")
    tally.entered(prompt(1, 1000), 0.0)
    demand = tally.take([], 0, 0.0)
    names = [name for name in prompt(1, 1000).boundaries[:] if name < 1 << (64 - demand.level)]
    assert unpack_hashes(demand.sample) == names
    assert 16 < len(names) <= 64


def test_workers_are_counted_as_they_report() -> None:
    idle = Load(max_running=8, free_blocks=100, total_blocks=100)
    counted = count([worker(), worker(load=idle), worker(load=None)])
    assert (counted.workers, counted.kv_tokens) == (2, 3200)
    assert (counted.blocks, counted.used_blocks) == (200, 20)
    assert (counted.slots, counted.used_slots) == (16, 3)
    # NOTE: who has computed nothing yet is as fast as the others.
    assert counted.prefill_tokens_per_second == 2000
    assert counted.backlog_tokens == 7
    broken = Load(max_running=1, prefill_tokens_per_second=float("nan"))
    assert count([replace(worker(), load=broken)]).prefill_tokens_per_second == 0


def test_workers_that_report_no_true_numbers_are_counted_for_all_that() -> None:
    every = 2**32 - 1
    huge = Load(
        backlog_tokens=2**64 - 1,
        waiting=every,
        running=every,
        max_running=every,
        total_blocks=every,
        free_blocks=every,
        prefill_tokens_per_second=1e308,
    )
    counted = count([replace(worker(blocks=every, load=huge), lease=at) for at in range(200)])
    assert counted.backlog_tokens == MOST
    assert counted.used_blocks == 0
    signals = read(Window(Spans(600.0)), counted, 1, 0.0)
    assert signals.workers == 200
