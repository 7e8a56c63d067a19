from hypothesis import given
from hypothesis import strategies as st
from radixgate.digest import SetDigest

hash_sets = st.sets(st.integers(0, 2**64 - 1), max_size=20)


@given(st.lists(st.integers(0, 2**64 - 1), unique=True))
def test_order_does_not_matter(hashes: list[int]) -> None:
    assert SetDigest.of(hashes) == SetDigest.of(reversed(hashes))
    assert SetDigest.of(hashes).count == len(hashes)


@given(hash_sets, st.data())
def test_a_changed_digest_is_the_digest_of_the_changed_set(
    held: set[int], data: st.DataObject
) -> None:
    removed = data.draw(st.sets(st.sampled_from(sorted(held)))) if held else set()
    added = data.draw(hash_sets) - held
    digest = SetDigest.of(held).changed(added, removed)
    assert digest == SetDigest.of((held - removed) | added)


def test_one_wrong_hash_shows() -> None:
    assert SetDigest.of({1, 2}) != SetDigest.of({1, 3})
    assert SetDigest.of(()) == SetDigest()
