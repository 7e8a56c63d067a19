"""The memo stays within its capacity and forgets the least recently used first."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.text.memo import ByteMemo

KEYS = st.sampled_from(["a", "bb", "ccc", "dddd", "e" * 50])


@given(st.lists(st.tuples(st.sampled_from(["get", "put"]), KEYS)))
def test_against_a_list(operations: list[tuple[str, str]]) -> None:
    memo, capacity = ByteMemo(20), 20
    kept: list[str] = []
    for operation, key in operations:
        if operation == "get":
            assert memo.get(key) == (key.encode() if key in kept else None)
            if key in kept:
                kept.remove(key)
                kept.append(key)
        else:
            memo.put(key, key.encode())
            if key not in kept:
                kept.append(key)
            while sum(2 * len(entry) for entry in kept) > capacity:
                kept.pop(0)
    assert all(memo.get(key) == key.encode() for key in kept)
