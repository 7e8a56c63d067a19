"""The step loop: right tokens however they are scheduled, exact counts, errors that stay local."""

import math
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from radixgate.namespace import NamespaceSeed
from torch import Tensor

from tests.engine.toys import BLOCK, VOCAB, Bench, Clock, expected, request, toy_forward
from worker.attention.base import PagedBatch
from worker.engine.events import FinishReason, Started
from worker.engine.request import SamplingParams
from worker.kv.events import KvEvents
from worker.kv.manager import KVManager


def test_a_request_is_started_answered_and_finished() -> None:
    bench = Bench()
    ticket = bench.add(request([1, 2, 3], max_tokens=4))
    bench.run()
    assert bench.events[ticket][0] == Started(prompt_tokens=3, cached_tokens=0)
    assert bench.output(ticket) == expected([1, 2, 3], 4)
    assert bench.text(ticket).split() == [str(token) for token in bench.output(ticket)]
    finished = bench.finished(ticket)
    assert finished.reason is FinishReason.LENGTH
    assert (finished.prompt_tokens, finished.output_tokens, finished.cached_tokens) == (3, 4, 0)
    assert 0 <= finished.queue_seconds < finished.ttft_seconds < finished.total_seconds


def test_a_stop_token_ends_it_and_has_no_text() -> None:
    tokens = expected([5], 10)
    bench = Bench()
    ticket = bench.add(request([5], max_tokens=10, stop_token_ids=[tokens[3]]))
    bench.run()
    assert bench.output(ticket) == tokens[:4]
    assert bench.text(ticket).split() == [str(token) for token in tokens[:3]]
    assert bench.finished(ticket).reason is FinishReason.STOP
    assert bench.finished(ticket).stop is None


def test_a_stop_string_ends_it_and_is_not_in_the_text() -> None:
    tokens = expected([5], 10)
    stop = f"{tokens[2]} {tokens[3]}"
    bench = Bench()
    ticket = bench.add(request([5], max_tokens=10, stop=(stop,)))
    bench.run()
    assert bench.output(ticket) == tokens[:4]
    assert bench.text(ticket).split() == [str(token) for token in tokens[:2]]
    assert bench.finished(ticket).stop == stop


def test_the_second_of_two_equal_prompts_is_cached_and_answers_alike() -> None:
    bench = Bench()
    prompt = list(range(5 * BLOCK + 2))
    for cached in (0, 5 * BLOCK):
        ticket = bench.add(request(prompt))
        bench.run()
        assert bench.finished(ticket).cached_tokens == cached
        assert bench.output(ticket) == expected(prompt, 5)
    assert bench.metric("prompt_tokens_total", source="cached") == 5 * BLOCK
    assert bench.metric("prompt_tokens_total", source="new") == len(prompt) + 2


def test_namespaces_share_nothing() -> None:
    bench = Bench()
    prompt = list(range(5 * BLOCK))
    for namespace in (1, 2):
        ticket = bench.add(request(prompt, namespace=NamespaceSeed(namespace)))
        bench.run()
        assert bench.finished(ticket).cached_tokens == 0


def test_hits_are_counted_once_although_preempted() -> None:
    bench = Bench(num_blocks=8)
    prompts = [[1] * 14, [2] * 14]
    tickets = [bench.add(request(prompt, max_tokens=17)) for prompt in prompts]
    bench.run()
    assert [bench.output(t) for t in tickets] == [expected(prompt, 17) for prompt in prompts]
    assert bench.finished(tickets[1]).preemptions == 1
    assert bench.finished(tickets[1]).cached_tokens == 0
    assert sum(isinstance(event, Started) for event in bench.events[tickets[1]]) == 1
    assert bench.metric("preemptions_total") == 1
    assert bench.metric("prompt_tokens_total", source="cached") == 0
    assert bench.metric("prompt_tokens_total", source="new") == 28


def test_what_a_preempted_sequence_finds_is_its_own_and_heats_nothing() -> None:
    bench = Bench(num_blocks=10)
    for first in (1, 2):
        bench.add(request([first] * 14, max_tokens=17))
    bench.run()
    assert bench.metric("preemptions_total") == 1
    assert bench.core.hottest(1_000) == []
    bench.add(request([1] * 14))
    bench.run()
    assert [prefix.heat for prefix in bench.core.hottest(1_000)] == [1.0]


@pytest.mark.parametrize("cut", range(1, 9))
def test_what_another_worker_began_goes_on_as_it_would_have(cut: int) -> None:
    prompt, tokens = list(range(2 * BLOCK + 1)), expected(list(range(2 * BLOCK + 1)), 9)
    whole, rest = Bench(), Bench()
    undisturbed = whole.add(request(prompt, max_tokens=9))
    whole.run()
    for cached in (0, min((len(prompt) + cut) // BLOCK * BLOCK, len(prompt))):
        ticket = rest.add(request(prompt, max_tokens=9, resumed=tokens[:cut]))
        rest.run()
        started, *_ = rest.events[ticket]
        assert started == Started(len(prompt), cached)
        assert rest.output(ticket) == tokens[cut:]
        finished = rest.finished(ticket)
        assert finished.output_tokens == whole.finished(undisturbed).output_tokens == 9
        assert (finished.prompt_tokens, finished.cached_tokens) == (len(prompt), cached)
        assert finished.misses is None
        assert finished.reason is FinishReason.LENGTH
    assert whole.text(undisturbed).endswith(rest.text(ticket))


def test_a_sampled_token_does_not_depend_on_who_computes_it() -> None:
    def forward(batch: PagedBatch) -> Tensor:
        return torch.zeros(len(batch.sample_rows), VOCAB)

    sampling = SamplingParams(temperature=1.0, seed=5)
    whole = Bench(forward=forward)
    ticket = whole.add(request([1, 2], max_tokens=20, sampling=sampling))
    whole.run()
    tokens = whole.output(ticket)
    assert len(set(tokens)) > 10
    for cut in (1, 7, 19):
        rest = Bench(forward=forward)
        ticket = rest.add(request([1, 2], 20, sampling=sampling, resumed=tokens[:cut]))
        rest.run()
        assert rest.output(ticket) == tokens[cut:]


def test_cancelling_frees_everything_in_every_state() -> None:
    bench = Bench(max_running=1, token_budget=8)
    prefilling, waiting = bench.add(request([1] * 20)), bench.add(request([2] * 20))
    bench.step()
    bench.core.cancel(waiting)
    bench.core.cancel(prefilling)
    bench.core.cancel(prefilling)
    assert bench.core.idle
    decoding = bench.add(request([3] * 3, max_tokens=50))
    bench.step()
    bench.step()
    bench.core.cancel(decoding)
    bench.core.check_integrity()
    assert bench.core.idle
    assert bench.core.load().kv.running_blocks == 0
    assert bench.metric("requests_total", outcome="cancelled") == 3


def test_an_error_in_a_step_ends_only_the_requests_in_it() -> None:
    broken = True

    def forward(batch: PagedBatch) -> Tensor:
        if broken:
            raise RuntimeError("out of luck")
        return toy_forward(batch)

    bench = Bench(forward=forward, max_running=1)
    first, second = bench.add(request([1, 2])), bench.add(request([3, 4]))
    bench.step()
    broken = False
    bench.run()
    assert bench.failed(first).message == "the engine failed: RuntimeError: out of luck"
    assert bench.output(second) == expected([3, 4], 5)
    assert bench.metric("requests_total", outcome="failed") == 1


def test_nan_logits_end_one_request_and_are_not_cached() -> None:
    def forward(batch: PagedBatch) -> Tensor:
        logits = toy_forward(batch)
        logits[batch.token_ids[batch.sample_rows] == 66] = math.nan
        return logits

    bench = Bench(forward=forward)
    bad, good = bench.add(request([1] * 7 + [66])), bench.add(request([1, 2]))
    bench.run()
    assert "logits for position 8 is nan" in bench.failed(bad).message
    assert bench.output(good) == expected([1, 2], 5)
    again = bench.add(request([1] * 7 + [66]))
    bench.step()
    assert bench.events[again][0] == Started(prompt_tokens=8, cached_tokens=0)


def test_nan_in_the_middle_of_a_prompt_ends_it_and_is_not_cached() -> None:
    def forward(batch: PagedBatch) -> Tensor:
        logits = toy_forward(batch)
        for row, start in enumerate(batch.query_starts[:-1]):
            if 66 in batch.token_ids[start : batch.query_starts[row + 1]]:
                logits[row] = math.nan
        return logits

    bench = Bench(forward=forward, token_budget=8)
    bad, good = bench.add(request([1] * 12 + [66] + [1] * 20)), bench.add(request([1, 2]))
    bench.run()
    assert "logits for position 16 is nan" in bench.failed(bad).message
    assert bench.output(good) == expected([1, 2], 5)
    again = bench.add(request([1] * 12 + [66] + [1] * 20))
    bench.step()
    assert bench.events[again][0] == Started(prompt_tokens=33, cached_tokens=8)


def test_expired_work_is_dropped_before_it_is_computed() -> None:
    clock = Clock()
    computed: list[int] = []

    def forward(batch: PagedBatch) -> Tensor:
        computed.extend(batch.token_ids.tolist())
        return toy_forward(batch)

    bench = Bench(clock=clock, forward=forward, max_running=1, token_budget=8)
    running = bench.add(request([1, 2], max_tokens=50), deadline=3.0)
    waiting = bench.add(request([70, 71]), deadline=2.0)
    unhurried = bench.add(request([5]))
    bench.step()
    assert not any(bench.events[ticket] for ticket in (waiting, unhurried))
    clock.now = 2.0
    bench.step()
    assert bench.expired(waiting).message == (
        "the deadline passed 2.000 s after arrival, before anything was computed"
    )
    clock.now = 3.5
    bench.run()
    assert bench.expired(running).message.endswith("3.500 s after arrival, with 2 tokens generated")
    assert bench.output(unhurried) == expected([5], 5)
    assert not {70, 71} & {*computed}
    assert bench.metric("requests_total", outcome="expired") == 2
    late = bench.add(request([70]), deadline=3.5)
    bench.step()
    assert bench.core.idle
    assert bench.expired(late)


def test_who_gives_up_at_its_deadline_has_expired() -> None:
    clock = Clock()
    bench = Bench(clock=clock)
    for at in (1.0, 2.0):
        ticket = bench.add(request([1]), deadline=2.0)
        clock.now = at
        bench.core.cancel(ticket)
    assert bench.metric("requests_total", outcome="cancelled") == 1
    assert bench.metric("requests_total", outcome="expired") == 1


def test_prompts_delay_generations_by_no_more_than_the_time_allowed() -> None:
    clock = Clock()
    most = 0.0

    def forward(batch: PagedBatch) -> Tensor:
        nonlocal most
        tokens, generating = len(batch.token_ids), len(batch.query_starts) > 2
        clock.now += 0.050 + 0.002 * (tokens - generating)
        most = max(most, 0.002 * (tokens - 1)) if generating else most
        return toy_forward(batch)

    bench = Bench(clock=clock, forward=forward, num_blocks=600, token_budget=256, chunk_seconds=0.1)
    bench.add(request([1] * 256, max_tokens=60))
    for _ in range(4):
        bench.step()
    bench.add(request([2] * 900, max_tokens=1))
    bench.run()
    assert 0.06 < most <= 0.1
    assert bench.core.load().prefill_tokens_per_second == pytest.approx(500, rel=0.2)


PREFIX = [index * 37 % 90 for index in range(512)]


def crowd(forward: Callable[[PagedBatch], Tensor] = toy_forward) -> Bench:
    kv = KVManager(512, 16, 64, KvEvents(nullcontext()))
    return Bench(kv=kv, stride=64, max_running=64, token_budget=128, forward=forward)


def prefix_tokens_computed(bench: Bench, tails: int) -> float:
    return bench.metric("computed_tokens_total", kind="prefill") - tails


def test_a_prefix_that_64_requests_share_is_computed_once() -> None:
    bench = crowd()
    prompts = [[*PREFIX, index, *range(9)] for index in range(64)]
    tickets = [bench.add(request(prompt, max_tokens=3)) for prompt in prompts]
    bench.run()
    for ticket, prompt in zip(tickets, prompts, strict=True):
        assert bench.output(ticket) == expected(prompt, 3)
    assert prefix_tokens_computed(bench, 64 * 10) <= 1.05 * 512
    assert [bench.finished(ticket).cached_tokens for ticket in tickets] == [0] + [512] * 63


@pytest.mark.parametrize("leave", [1, 5])
def test_who_waits_for_a_prefix_goes_on_when_the_one_that_computes_it_leaves(leave: int) -> None:
    bench = crowd()
    tickets = [bench.add(request([*PREFIX, index], max_tokens=3)) for index in range(64)]
    for ticket in tickets[:leave]:
        bench.step()
        bench.core.cancel(ticket)
    bench.run()
    for index, ticket in enumerate(tickets[leave:], start=leave):
        assert bench.output(ticket) == expected([*PREFIX, index], 3)
    assert prefix_tokens_computed(bench, 64 - leave) <= 1.05 * 512


def test_who_waits_for_a_prefix_goes_on_when_the_one_that_computes_it_fails() -> None:
    steps = 0

    def forward(batch: PagedBatch) -> Tensor:
        nonlocal steps
        steps += 1
        return toy_forward(batch) * (math.nan if steps == 3 else 1)

    bench = crowd(forward)
    tickets = [bench.add(request([*PREFIX, index], max_tokens=3)) for index in range(20)]
    bench.run()
    assert bench.failed(tickets[0])
    for index, ticket in enumerate(tickets[1:], start=1):
        assert bench.output(ticket) == expected([*PREFIX, index], 3)
    assert prefix_tokens_computed(bench, 19) == 512 + 128


def test_load_and_metrics_tell_the_state() -> None:
    bench = Bench(max_running=1, token_budget=8, num_blocks=32)
    bench.add(request([1] * 20))
    bench.add(request([2] * 6))
    bench.step()
    load = bench.core.load()
    assert (load.running, load.waiting, load.max_running) == (1, 1, 1)
    assert load.backlog_tokens == 12 + 6
    kv = load.kv
    assert kv.free_blocks + kv.cached_blocks + kv.running_blocks == kv.total_blocks == 32
    assert bench.metric("requests_waiting") == 1
    assert bench.metric("kv_total_bytes") == 3200
    assert bench.metric("kv_used_bytes") == (32 - kv.free_blocks) * 100
    assert bench.metric("kv_blocks", state="running") == kv.running_blocks == 6
    assert load.fragmentation == pytest.approx(1 - 8 / 24)


def test_what_is_not_counted_is_in_no_metric_of_requests() -> None:
    """However it ends: by itself, failed, cancelled or expired."""

    def forward(batch: PagedBatch) -> Tensor:
        return toy_forward(batch) * (math.nan if 66 in batch.token_ids else 1)

    clock = Clock()
    bench = Bench(forward=forward, clock=clock)
    done = bench.add(request([1] * 8, 2, counted=False))
    bench.core.cancel(bench.add(request([2], counted=False)))
    bench.run()
    bad = bench.add(request([66], counted=False))
    bench.run()
    late = bench.add(request([3], counted=False), deadline=1.0)
    clock.now = 1.0
    bench.step()
    assert bench.finished(done)
    assert bench.failed(bad)
    assert bench.expired(late)
    counts = [
        sample
        for metric in bench.registry.collect()
        for sample in metric.samples
        if sample.name.endswith(("_count", "requests_total", "prompt_tokens_total"))
    ]
    assert len(counts) == 5 + 5 + 4, "histograms, outcomes, sources"
    assert not [sample for sample in counts if sample.value]
    assert bench.metric("computed_tokens_total", kind="prefill") == 9
    bench.add(request([1] * 8))
    bench.run()
    assert bench.metric("prompt_tokens_total", source="cached") == 8
    assert bench.metric("requests_total", outcome="length") == 1


def test_a_pin_whose_time_has_passed_is_not_counted() -> None:
    clock = Clock()
    bench = Bench(clock=clock)
    prompt = request([1] * 3 * BLOCK)
    bench.add(prompt)
    bench.run()
    bench.core.pin(bench.core.tokens(prompt), ttl=5)
    for now, pinned in ((4.9, 3), (5.0, 0)):
        clock.now = now
        assert bench.core.load().kv.pinned_blocks == pinned
        assert bench.metric("kv_blocks", state="pinned") == pinned


def test_rates_and_regret_are_measured() -> None:
    bench = Bench(num_blocks=12, token_budget=40)
    for prompt in ([1] * 40, [2] * 40, [1] * 40):
        bench.add(request(prompt, max_tokens=3))
        bench.run()
    load = bench.core.load()
    assert load.prefill_tokens_per_second > 0
    assert load.itl_ms > 0
    assert load.kv.evicted_blocks > 0
    assert load.regret_ms_per_block > 0
    assert bench.metric("evicted_blocks_total") == load.kv.evicted_blocks
    again = bench.metric("regret_tokens_total")
    assert again == load.kv.recomputed_tokens > 0
    assert bench.metric("regret_seconds_total") > 0
    for name, count in {"queue": 3, "prefill": 3, "time_to_first_token": 3}.items():
        assert bench.metric(f"{name}_seconds_count") == count
    assert bench.metric("request_tokens_per_second_count") == 3
    assert Bench().core.load().regret_ms_per_block == 0


@settings(max_examples=60)
@given(
    prompts=st.lists(
        st.builds(
            lambda shared, own: [*range(shared), *own],
            st.integers(0, 24),
            st.lists(st.integers(50, 52), min_size=1, max_size=12),
        ),
        min_size=1,
        max_size=10,
    ),
    num_blocks=st.integers(16, 40),
    max_running=st.integers(1, 5),
    token_budget=st.integers(5, 40),
)
def test_tokens_never_depend_on_the_schedule(
    prompts: list[list[int]], num_blocks: int, max_running: int, token_budget: int
) -> None:
    bench = Bench(num_blocks=num_blocks, max_running=max_running, token_budget=token_budget)
    tickets = [bench.add(request(prompt, max_tokens=8)) for prompt in prompts]
    bench.run()
    for ticket, prompt in zip(tickets, prompts, strict=True):
        assert bench.output(ticket) == expected(prompt, 8)
    assert bench.core.load().kv.running_blocks == 0


def test_sampled_tokens_depend_on_seed_and_position_alone() -> None:
    def forward(batch: PagedBatch) -> Tensor:
        return torch.zeros(len(batch.sample_rows), VOCAB)

    params = SamplingParams(temperature=1.0, seed=99)
    alone = Bench(forward=forward)
    first = alone.add(request([1, 2, 3], max_tokens=10, sampling=params))
    alone.run()
    tokens = alone.output(first)
    crowd = Bench(forward=forward)
    crowd.add(request([9] * 30, max_tokens=20, sampling=SamplingParams(1.0, seed=5)))
    continued = crowd.add(request([1, 2, 3, *tokens[:4]], max_tokens=6, sampling=params))
    crowd.run()
    assert crowd.output(continued) == tokens[4:]
