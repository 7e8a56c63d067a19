"""Rolling updates: pods within their bounds at each step, whatever becomes ready or breaks when."""

from hypothesis import given
from hypothesis import strategies as st

from tests.kube.deployments import Replicas, step


def test_what_is_broken_goes_first() -> None:
    old = [Replicas(2, 2), Replicas(2, 0)]
    assert step(4, 1, 1, Replicas(1, 0), old) == [2, 1, 1]
    assert step(4, 0, 1, Replicas(1, 1), [Replicas(2, 0)] * 2) == [0, 2, 1]


@given(
    wanted=st.integers(1, 6),
    bounds=st.sampled_from([(1, 0), (0, 1), (2, 1), (0, 3)]),
    changes=st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=60),
)
def test_a_rollout_stays_within_its_bounds_and_ends(
    wanted: int, bounds: tuple[int, int], changes: list[tuple[int, bool]]
) -> None:
    # Two old ReplicaSets and the new one; pods become available, and break, one at a time.
    sets = [[wanted // 2, wanted // 2], [wanted - wanted // 2, wanted - wanted // 2], [0, 0]]
    surge, unavailable = bounds
    least = wanted - unavailable
    endless = [(index, True) for _ in range(20 * wanted) for index in range(3)]
    for index, better in [*changes, *endless]:
        replicas, available = sets[index]
        sets[index][1] = min(replicas, available + 1) if better else max(0, available - 1)
        before = sum(available for _, available in sets)
        old = [Replicas(*one) for one in sets[:2]]
        counts = step(wanted, surge, unavailable, Replicas(*sets[2]), old)
        assert sum(counts) <= max(wanted + surge, sum(one[0] for one in sets))
        for one, count in zip(sets, counts, strict=True):
            # A ReplicaSet deletes what is not ready first.
            one[:] = [count, min(one[1], count)]
        assert sum(available for _, available in sets) >= min(before, least)
    assert [one[0] for one in sets] == [0, 0, wanted]
