"""Rolling updates: pods within their bounds at each step, whatever becomes ready or breaks when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube.deployments import Replicas, Strategy, step


@pytest.mark.parametrize(
    ("wanted", "surge", "unavailable", "strategy"),
    [
        (10, "25%", "25%", (3, 2)),  # the surge is rounded up, what may be missing down
        (2, "25%", "25%", (1, 0)),
        (3, 1, 0, (1, 0)),
        (3, 0, 1, (0, 1)),
        (3, 0, "10%", (0, 1)),  # both none would be never
    ],
)
def test_percentages(
    wanted: int, surge: int | str, unavailable: int | str, strategy: tuple[int, int]
) -> None:
    assert Strategy.of(wanted, surge, unavailable) == strategy


def test_what_is_broken_goes_first() -> None:
    old = [Replicas(2, 2), Replicas(2, 0)]
    assert step(4, Strategy(1, 1), Replicas(1, 0), old) == [2, 1, 1]
    assert step(4, Strategy(0, 1), Replicas(1, 1), [Replicas(2, 0)] * 2) == [0, 2, 1]


@given(
    wanted=st.integers(1, 6),
    strategy=st.sampled_from([Strategy(1, 0), Strategy(0, 1), Strategy(2, 1), Strategy(0, 3)]),
    changes=st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=60),
)
def test_a_rollout_stays_within_its_bounds_and_ends(
    wanted: int, strategy: Strategy, changes: list[tuple[int, bool]]
) -> None:
    # Two old ReplicaSets and the new one; pods become available, and break, one at a time.
    sets = [[wanted // 2, wanted // 2], [wanted - wanted // 2, wanted - wanted // 2], [0, 0]]
    least = wanted - strategy.unavailable
    endless = [(index, True) for _ in range(20 * wanted) for index in range(3)]
    for index, better in [*changes, *endless]:
        replicas, available = sets[index]
        sets[index][1] = min(replicas, available + 1) if better else max(0, available - 1)
        before = sum(available for _, available in sets)
        old = [Replicas(*one) for one in sets[:2]]
        counts = step(wanted, strategy, Replicas(*sets[2]), old)
        assert sum(counts) <= max(wanted + strategy.surge, sum(one[0] for one in sets))
        for one, count in zip(sets, counts, strict=True):
            # A ReplicaSet deletes what is not ready first.
            one[:] = [count, min(one[1], count)]
        assert sum(available for _, available in sets) >= min(before, least)
    assert [one[0] for one in sets] == [0, 0, wanted]
