from hypothesis import given
from hypothesis import strategies as st
from radixgate.namespace import Namespace

# Few letters, so that fields often run into each other: ("ab", "") and ("a", "b").
names = st.text("ab\0é", max_size=3)
namespaces = st.builds(Namespace, names, names, names, names)


@given(namespaces, namespaces)
def test_namespaces_are_equal_exactly_when_their_bytes_are(one: Namespace, two: Namespace) -> None:
    assert (one == two) == (one.canonical() == two.canonical())
    assert (one == two) == (one.seed() == two.seed())


@given(namespaces)
def test_canonical_bytes_read_back_as_the_fields(space: Namespace) -> None:
    left, fields = space.canonical(), []
    while left:
        size = int.from_bytes(left[:4], "little")
        fields.append(left[4 : 4 + size].decode())
        left = left[4 + size :]
    assert fields == list(space)
