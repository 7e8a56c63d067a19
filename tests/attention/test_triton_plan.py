"""How a step is divided for a GPU."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from worker.attention.triton_plan import FEW_ROWS, TILE, make_plan


@given(
    sequences=st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 200)), min_size=1),
    kv_heads=st.integers(1, 4),
    group=st.integers(1, 8),
    processors=st.integers(1, 132),
)
def test_a_plan_covers_each_pair_of_row_and_token_once(
    sequences: list[tuple[int, int]], kv_heads: int, group: int, processors: int
) -> None:
    new, contexts = [n for _, n in sequences], [before + n for before, n in sequences]
    plan = make_plan(new, contexts, kv_heads=kv_heads, group=group, processors=processors)
    covered: dict[int, int] = dict.fromkeys(range(len(sequences)), 0)
    for rows, tasks in plan:
        for task, after in pairwise([*tasks, None]):
            assert task.start < task.stop
            assert task.start % TILE == 0
            assert task.first_row == covered[task.sequence]
            assert (rows == FEW_ROWS) == (new[task.sequence] * group <= FEW_ROWS)
            if task.split == 0:
                assert task.start == 0
            if task.split < task.splits - 1:
                assert after == task._replace(
                    start=task.stop, stop=after.stop, split=task.split + 1
                )
            else:
                end = min(task.first_row + rows, new[task.sequence] * group)
                before = sequences[task.sequence][0]
                assert task.stop == before + (end - 1) // group + 1
                covered[task.sequence] = end
    assert covered == {sequence: length * group for sequence, length in enumerate(new)}


def test_few_sequences_are_split_for_the_processors() -> None:
    [launch] = make_plan([1], [32768], kv_heads=8, group=4, processors=132)
    assert launch.is_split
    assert 132 <= 8 * len(launch.tasks) <= 132 * 8


def test_many_sequences_are_not_split() -> None:
    [launch] = make_plan([1] * 512, [1000] * 512, kv_heads=8, group=4, processors=4)
    assert not launch.is_split
