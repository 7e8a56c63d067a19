"""Tokens against the plain list of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from radixgate.namespace import NamespaceSeed
from radixgate.prefix import boundary_hashes, pack_tokens

from worker.kv.tokens import Tokens

chunks = st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=7), max_size=5)


@given(chunks, st.integers(1, 4), st.integers(0, 2**64 - 1))
def test_grows_like_a_list_and_hashes_like_the_whole(
    chunks: list[list[int]], stride: int, seed: int
) -> None:
    tokens, plain = Tokens(NamespaceSeed(seed), stride), list[int]()
    for chunk in chunks:
        if len(chunk) == 1:
            tokens.append(chunk[0])
        else:
            tokens.extend(pack_tokens(chunk))
        plain += chunk
        assert len(tokens) == len(plain)
        assert tokens.ids() == plain
        assert tokens.ids(1, 3) == plain[1:3]
        assert tokens.packed == pack_tokens(plain)
        assert tokens.hashes == boundary_hashes(pack_tokens(plain), stride, NamespaceSeed(seed))


def test_refuses_what_is_not_tokens() -> None:
    tokens = Tokens(NamespaceSeed(0), 4)
    with pytest.raises(ValueError, match="not a multiple of 4"):
        tokens.extend(b"abc")
    with pytest.raises(ValueError, match="outside"):
        tokens.append(-1)
    assert len(tokens) == 0
