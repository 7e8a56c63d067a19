"""What is kept of entries, and for how long."""

import math
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from radixgate.v1.demand_pb2 import Demand

from gateway.scale.signals import read
from gateway.scale.window import FRESH, Entry, Spans, Window

SPANS = Spans(100.0)


def window_of(*entries: tuple[float, Demand]) -> Window:
    window = Window(SPANS)
    for at, demand in entries:
        window.add(Entry(at, demand))
    return window


@given(
    st.lists(
        st.tuples(
            st.floats(0, 300),
            st.dictionaries(st.sampled_from("abc"), st.integers(0, 10**6)),
            st.integers(0, 10**6),
        ),
        min_size=1,
    ),
    st.floats(0, 50),
)
def test_values_and_counts_are_those_of_all_entries_that_are_kept(
    entries: list[tuple[float, dict[str, int], int]], later: float
) -> None:
    entries.sort(key=lambda each: each[0])
    window = window_of(
        *((at, Demand(served_tokens=served, prompt_tokens=p)) for at, served, p in entries)
    )
    last = entries[-1][0]
    kept = [each for each in entries if each[0] >= last - SPANS.memory]
    values: defaultdict[str, float] = defaultdict(float)
    for at, served, _ in kept:
        for worker, tokens in served.items():
            values[worker] += tokens * math.log(2) / 50 * 2 ** (-(last + later - at) / 50)
    assert window.values(last + later) == pytest.approx(dict(values))
    assert window.prompt_tokens == sum(prompt for _, _, prompt in kept)


def test_a_steady_rate_is_nearly_its_own_value() -> None:
    window = window_of(*((float(at), Demand(served_tokens={"a": 40})) for at in range(300)))
    assert window.values(299.0)["a"] == pytest.approx(40, rel=0.27)


def test_what_waits_at_a_gateway_that_has_gone_is_forgotten() -> None:
    gone = Demand(gateway="a", waiting=3, waiting_seconds=6.0)
    window = window_of((0.0, gone), (1.0, Demand(gateway="b", waiting=1, waiting_seconds=2.0)))
    now = read(window, Demand(), 0, 1.0)
    assert (now.waiting, now.queue_seconds) == (4, 2.0)
    window.add(Entry(FRESH + 1, Demand(gateway="b", waiting=2, waiting_seconds=1.0)))
    now = read(window, Demand(), 0, FRESH + 1)
    assert now.waiting == 2


def test_it_knows_since_when_nothing_is_missing() -> None:
    window = Window(SPANS)
    assert window.complete_seconds(5.0) == 0
    for at in range(0, 60, 2):
        window.add(Entry(at, Demand()))
    assert window.complete_seconds(60.0) == 60
    window.add(Entry(60.0, Demand()), complete=False)
    assert window.complete_seconds(62.0) == 0
    window.add(Entry(62.0, Demand()))
    assert window.complete_seconds(64.0) == 2
    window.add(Entry(62.0 + FRESH + 1, Demand()))
    assert window.complete_seconds(70.0) == 1


def test_a_moment_without_redis_does_not_make_a_load_look_larger() -> None:
    there = Demand(workers=4, prefill_tokens_per_second=1000)
    steady = Demand(requests=1, prompt_tokens=1000)
    window = window_of(*((float(at), steady) for at in range(0, 100, 2)))
    before = read(window, there, 4, 100.0).prefill_utilization
    assert before == pytest.approx(0.5, rel=0.11)
    window.add(Entry(100.0, steady), complete=False)
    assert read(window, there, 4, 100.0).prefill_utilization == pytest.approx(before, rel=0.11)
    window.add(Entry(102.0, steady))
    assert read(window, there, 4, 104.0).prefill_utilization == pytest.approx(before, rel=0.11)


def test_what_was_counted_before_the_clock_was_set_back_is_forgotten() -> None:
    there = Demand(workers=4, prefill_tokens_per_second=1000)
    before = Demand(
        gateway="gone", requests=1, prompt_tokens=1000, waiting=5, sample=bytes(8), stride=64
    )
    window = window_of(*((float(at), before) for at in range(1000, 1100, 2)))
    window.add(Entry(500.0, Demand(gateway="a", requests=1, prompt_tokens=10)))
    now = read(window, there, 4, 501.0)
    assert (now.requests, now.waiting, window.prompt_tokens) == (1, 0, 10)
    assert window.complete_seconds(501.0) == 1.0
    assert not now.settled


@given(
    st.lists(
        st.builds(
            Demand,
            requests=st.integers(0, 9),
            waited_seconds=st.floats(),
            waiting=st.integers(0, 9),
            waiting_seconds=st.floats(),
            prompt_tokens=st.integers(0, 9),
            cached_tokens=st.integers(0, 9),
            evicted_tokens=st.integers(0, 9),
            workers=st.integers(0, 3),
            kv_tokens=st.integers(0, 9),
            blocks=st.integers(0, 9),
            used_blocks=st.integers(0, 9),
            slots=st.integers(0, 9),
            used_slots=st.integers(0, 9),
            prefill_tokens_per_second=st.floats(),
            backlog_tokens=st.integers(0, 9),
        ),
        min_size=1,
    )
)
def test_no_entry_makes_a_signal_that_is_no_number(entries: list[Demand]) -> None:
    window = window_of(*((float(at), each) for at, each in enumerate(entries)))
    signals = read(window, entries[-1], 2, float(len(entries)))
    for name in signals.__slots__:
        number = getattr(signals, name)
        assert math.isfinite(number), name
        assert number >= 0, name
    assert math.isfinite(signals.cache_pressure)
    for share in (signals.miss_rate, signals.evicted_share, signals.kv_utilization):
        assert share <= 1
