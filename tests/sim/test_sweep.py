"""A sweep is every combination of what its axes say."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.sweep import SweepError, combinations

KNOWN = ("workers", "kv_format", "load")


def test_workers_and_formats() -> None:
    assert combinations(["workers=2..4", "kv_format=none,int8"], KNOWN) == [
        {"workers": workers, "kv_format": kv_format}
        for workers in ("2", "3", "4")
        for kv_format in ("none", "int8")
    ]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("4", ["4"]),
        ("2..2", ["2"]),
        ("2..9..3", ["2", "5", "8"]),
        ("2..8..3", ["2", "5", "8"]),
        ("1, 2..4,16", ["1", "2", "3", "4", "16"]),
        ("0.7..0.9..0.1", ["0.7", "0.8", "0.9"]),
    ],
)
def test_values(text: str, values: list[str]) -> None:
    assert combinations([f"workers={text}"], KNOWN) == [{"workers": value} for value in values]


@given(
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(1, 9),
    st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=4, unique=True),
)
def test_ranges_are_those_of_python(low: int, more: int, step: int, names: list[str]) -> None:
    axes = [f"workers={low}..{low + more}..{step}", f"kv_format={','.join(names)}"]
    expected = product(map(str, range(low, low + more + 1, step)), names)
    got = [(each["workers"], each["kv_format"]) for each in combinations(axes, KNOWN)]
    assert got == list(expected)


@pytest.mark.parametrize(
    ("axes", "why"),
    [
        (["workers"], "write name=values"),
        (["workers="], "write name=values"),
        (["wrokers=2"], "'wrokers' cannot be swept, only kv_format, load, workers"),
        (["workers=2", "workers=4"], "swept already"),
        (["workers=2,,4"], "a value is missing"),
        (["workers=2..4,4"], "more than once: 4"),
        (["workers=4..2"], "has no values"),
        (["workers=2..4..0"], "has no values"),
        (["workers=2..many"], "is no range"),
        (["workers=-2..4"], "is no range"),
        (["workers=1..2..3..4"], "is no range"),
        (["workers=1..1000000000"], "1000000000 values, and 1000 are the most"),
        (["workers=1..50", "load=1..50"], "50 workers x 50 load are 2500 runs"),
    ],
)
def test_errors_say_what_is_wrong(axes: list[str], why: str) -> None:
    with pytest.raises(SweepError, match=why):
        combinations(axes, KNOWN)
