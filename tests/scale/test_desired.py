"""How many workers signals ask for, whatever the signals are."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.scale.desired import (
    BAND,
    GROWTH,
    SHRINK,
    SPARE,
    TARGETS,
    Metric,
    desired_workers,
    idle,
    level,
    needs,
    step,
    value,
)
from gateway.scale.signals import TOLERATED, Signals

CALM = Signals(
    size=4,
    workers=4,
    kv_tokens=400_000,
    requests=100,
    waiting=0,
    running=3,
    miss_rate=0.1,
    evicted_share=0.0,
    working_set_tokens=280_000.0,
    fewest=4,
    queue_seconds=0.1,
    fewest_recently=4,
    kv_utilization=0.3,
    slot_utilization=0.3,
    prefill_utilization=0.3,
    counted=True,
    settled=True,
)

shares = st.floats(0, 1)
ratios = st.floats(0, 1e6)
counts = st.integers(0, 300)
anything = st.builds(
    Signals,
    size=counts,
    workers=counts,
    kv_tokens=st.integers(0, 10**9),
    requests=counts,
    waiting=counts,
    running=counts,
    miss_rate=shares,
    evicted_share=shares,
    working_set_tokens=st.floats(0, 1e12),
    fewest=counts,
    queue_seconds=ratios,
    fewest_recently=counts,
    kv_utilization=shares,
    slot_utilization=ratios,
    prefill_utilization=ratios,
    counted=st.booleans(),
    settled=st.booleans(),
).map(lambda signals: replace(signals, size=max(signals.size, signals.workers)))
busy = anything.filter(lambda signals: signals.traffic and signals.workers > 0)


def average_value(current: int, told: float, target: float) -> int:
    """What a HorizontalPodAutoscaler makes of what KEDA was told: in thousandths."""
    told_milli, target_milli = int(told * 1000), int(target * 1000)
    if current and abs(1 - told_milli / (target_milli * current)) <= 0.1:
        return current
    return math.ceil(told_milli / target_milli)


@given(anything, st.sampled_from(Metric), st.booleans())
def test_nothing_is_ever_nan_infinite_or_negative(
    signals: Signals, metric: Metric, scale_to_zero: bool
) -> None:
    told = value(metric, signals, TARGETS[metric], scale_to_zero=scale_to_zero)
    known = level(metric, signals)
    numbers = [told, *needs(signals).values(), *([] if known is None else [known])]
    assert all(math.isfinite(number) and number >= 0 for number in numbers)


@given(anything)
def test_it_asks_for_nobody_only_when_that_is_wanted_or_nobody_is_there(signals: Signals) -> None:
    if not desired_workers(signals):
        assert not signals.size
    if not desired_workers(signals, scale_to_zero=True):
        assert idle(signals) or not signals.size


@given(anything)
def test_without_traffic_the_size_stays(signals: Signals) -> None:
    quiet = replace(signals, requests=0, waiting=0)
    assert desired_workers(quiet) == quiet.size
    for metric in Metric:
        told = value(metric, quiet, TARGETS[metric])
        assert average_value(quiet.size, told, TARGETS[metric]) == quiet.size


@given(
    busy,
    st.sampled_from(
        [
            "evicted_share",
            "working_set_tokens",
            "queue_seconds",
            "kv_utilization",
            "slot_utilization",
            "prefill_utilization",
        ]
    ),
    st.data(),
)
def test_more_of_anything_never_asks_for_fewer(
    signals: Signals, name: str, data: st.DataObject
) -> None:
    now = getattr(signals, name)
    share = name in ("evicted_share", "kv_utilization")
    more = replace(signals, **{name: data.draw(st.floats(now, 1 if share else max(now, 1e6)))})
    assert desired_workers(more) >= desired_workers(signals)


@given(st.floats(0, 500), st.integers(1, 300))
def test_its_own_answer_converges_and_stays(need: float, size: int) -> None:
    sizes = [size]
    while (following := step(need, sizes[-1], shrinks=True)) != sizes[-1]:
        sizes.append(following)
        assert len(sizes) < 100
    assert sizes == sorted(sizes) or sizes == sorted(sizes, reverse=True)
    last = sizes[-1]
    assert need <= last * (1 + BAND)
    assert last == size or last == 1 or last * (1 - BAND) <= math.ceil(need / (1 - SPARE))


@given(st.floats(0, 500), st.integers(1, 300), st.booleans())
def test_steps_are_bounded_and_large_enough_to_be_followed(
    need: float, size: int, shrinks: bool
) -> None:
    following = step(need, size, shrinks=shrinks)
    assert 1 <= following <= size * GROWTH
    assert following >= size - max(1, size * SHRINK)
    assert shrinks or following >= size
    assert average_value(size, float(following), 1.0) == following


@given(
    st.floats(0.1, 200),
    st.integers(1, 300),
    st.lists(st.floats(0.91, 1.09), min_size=1, max_size=30),
)
def test_a_need_that_wavers_makes_no_flapping(need: float, size: int, noise: list[float]) -> None:
    while (following := step(need, size, shrinks=True)) != size:
        size = following
    ups, downs = 0, 0
    for factor in noise:
        following = step(need * factor, size, shrinks=True)
        ups, downs, size = ups + (following > size), downs + (following < size), following
    assert not (ups and downs)


@given(busy)
def test_keda_sets_the_size_that_is_desired(signals: Signals) -> None:
    told = value(Metric.DESIRED_WORKERS, signals, 1.0)
    assert average_value(signals.size, told, 1.0) == desired_workers(signals)


def test_evictions_ask_for_more_and_a_large_cold_set_does_not() -> None:
    assert desired_workers(CALM) == 4
    assert desired_workers(replace(CALM, working_set_tokens=1e9)) == 4
    lossy = replace(CALM, evicted_share=0.2)
    assert desired_workers(lossy) == 5
    assert desired_workers(replace(lossy, working_set_tokens=500_000.0)) == 7
    assert lossy.cache_pressure > 1 >= CALM.cache_pressure


def test_losses_of_a_smaller_pool_do_not_count_against_a_grown_one() -> None:
    grown = replace(CALM, size=5, workers=5, kv_tokens=500_000, evicted_share=0.2, fewest=4)
    assert desired_workers(grown) == 5


def test_a_pool_shrinks_only_to_where_its_working_set_has_room() -> None:
    small = replace(CALM, working_set_tokens=100_000.0)
    assert desired_workers(small) == 3
    assert desired_workers(replace(small, settled=False)) == 4
    three = replace(small, size=3, workers=3, kv_tokens=300_000, fewest=3, fewest_recently=3)
    assert desired_workers(three) == 2
    fits = replace(three, size=2, workers=2, kv_tokens=200_000)
    assert desired_workers(fits) == 2
    assert fits.evicted_share <= TOLERATED


@pytest.mark.parametrize(
    ("changed", "workers"),
    [
        ({"queue_seconds": 1.5}, 6),
        ({"queue_seconds": 100.0}, 8),
        ({"kv_utilization": 1.0}, 5),
        ({"slot_utilization": 1.2}, 6),
        ({"prefill_utilization": 1.0}, 5),
    ],
)
def test_each_load_asks_for_as_many_as_it_needs(changed: dict[str, float], workers: int) -> None:
    assert desired_workers(replace(CALM, **changed)) == workers  # type: ignore[arg-type]


def test_a_pool_without_workers_wants_one_when_somebody_waits() -> None:
    nobody = replace(CALM, size=0, workers=0, kv_tokens=0, requests=0, running=0)
    assert desired_workers(nobody) == 0
    assert desired_workers(replace(nobody, waiting=3)) == 1
    assert desired_workers(replace(nobody, size=2, waiting=3)) == 2
    assert idle(nobody)
    assert not idle(replace(nobody, waiting=3))


def test_silence_is_believed_only_where_all_is_counted() -> None:
    silent = replace(CALM, requests=0, running=0)
    assert desired_workers(silent, scale_to_zero=True) == 0
    assert desired_workers(replace(silent, counted=False), scale_to_zero=True) == 4
    assert desired_workers(replace(silent, running=1), scale_to_zero=True) == 4
