"""Averages that forget, against all that was ever served."""

import math
from collections import defaultdict, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.scale.served import MOST_HALF_LIVES, Served

HALF_LIFE = 10.0


@given(
    st.lists(
        st.tuples(
            st.floats(0, 2 * HALF_LIFE),
            st.dictionaries(st.sampled_from("abc"), st.integers(1, 10**9)),
        ),
    ),
    st.integers(1, 8),
    st.floats(0, 50),
)
def test_a_value_is_the_sum_of_all_that_is_kept(
    steps: list[tuple[float, dict[str, int]]], keep: int, later: float
) -> None:
    served, at = Served(HALF_LIFE), 1e9
    kept: deque[tuple[float, dict[str, int]]] = deque()
    for pause, tokens in steps:
        at += pause
        served.add(at, tokens)
        kept.append((at, tokens))
        if len(kept) > keep:
            served.remove(*kept.popleft())
    wanted: defaultdict[str, float] = defaultdict(float)
    for when, tokens in kept:
        for worker, count in tokens.items():
            wanted[worker] += (
                count * math.log(2) / HALF_LIFE * 2 ** ((when - at - later) / HALF_LIFE)
            )
    assert served.values(at + later) == pytest.approx(dict(wanted), rel=1e-4)


def test_it_goes_on_for_ever() -> None:
    served = Served(HALF_LIFE)
    for at in range(0, int(3 * MOST_HALF_LIVES * HALF_LIFE)):
        served.add(float(at), {"a": 40})
        if at >= 20:
            served.remove(float(at - 20), {"a": 40})
    assert served.values(-1e12).keys() == served.values(1e12).keys() == {"a"}
    recent = sum(0.5 ** (age / HALF_LIFE) for age in range(20))
    expected = 40 * math.log(2) / HALF_LIFE * recent
    assert served.values(3 * MOST_HALF_LIVES * HALF_LIFE - 1)["a"] == pytest.approx(expected)
