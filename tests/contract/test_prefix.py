import struct

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from radixgate.namespace import NamespaceSeed
from radixgate.prefix import (
    BoundaryHashes,
    PrefixHasher,
    boundary_hashes,
    pack_hashes,
    pack_tokens,
    prefix_hash,
    unpack_hashes,
    unpack_tokens,
)

token_lists = st.lists(st.integers(0, 2**32 - 1), max_size=200)
hash_lists = st.lists(st.integers(0, 2**64 - 1), max_size=50)
seeds = st.integers(0, 2**64 - 1).map(NamespaceSeed)
strides = st.integers(1, 70)


@given(token_lists)
def test_tokens_pack_as_little_endian_uint32(tokens: list[int]) -> None:
    packed = pack_tokens(tokens)
    assert packed == struct.pack(f"<{len(tokens)}I", *tokens)
    assert unpack_tokens(packed) == tokens


@given(hash_lists)
def test_hashes_pack_as_little_endian_uint64(hashes: list[int]) -> None:
    packed = pack_hashes(hashes)
    assert packed == struct.pack(f"<{len(hashes)}Q", *hashes)
    assert unpack_hashes(packed) == hashes


@given(token_lists, strides, seeds)
def test_a_boundary_hash_names_the_whole_prefix(
    tokens: list[int], stride: int, seed: NamespaceSeed
) -> None:
    packed = pack_tokens(tokens)
    ends = range(stride, len(tokens) + 1, stride)
    expected = [xxhash.xxh3_64_intdigest(packed[: 4 * end], seed) for end in ends]
    assert boundary_hashes(packed, stride, seed) == expected
    assert [prefix_hash(packed, end, seed) for end in ends] == expected


@given(st.lists(token_lists, max_size=5), strides, seeds)
def test_streaming_in_pieces_gives_the_hashes_of_the_whole(
    pieces: list[list[int]], stride: int, seed: NamespaceSeed
) -> None:
    hasher = PrefixHasher(stride, seed)
    streamed = [value for piece in pieces for value in hasher.update(pack_tokens(piece))]
    whole = [token for piece in pieces for token in piece]
    assert streamed == boundary_hashes(pack_tokens(whole), stride, seed)


@given(token_lists, strides, seeds, st.data())
def test_hashes_made_on_demand_are_those_made_at_once(
    tokens: list[int], stride: int, seed: NamespaceSeed, data: st.DataObject
) -> None:
    packed = pack_tokens(tokens)
    expected, lazy = boundary_hashes(packed, stride, seed), BoundaryHashes(packed, stride, seed)
    assert len(lazy) == len(expected)
    for _ in range(data.draw(st.integers(0, 5), "reads") if expected else 0):
        at = data.draw(
            st.integers(-len(expected), len(expected) - 1) | st.slices(len(expected)), "place"
        )
        assert lazy[at] == expected[at]
    assert list(lazy) == expected
    with pytest.raises(IndexError):
        lazy[len(expected)]


def test_hashes_made_on_demand_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = BoundaryHashes(pack_tokens(range(40)), 4, NamespaceSeed(1))
    once = [made[7], *made[2:5], *made]
    monkeypatch.setattr(xxhash, "xxh3_64", None)
    monkeypatch.setattr(xxhash, "xxh3_64_intdigest", None)
    assert [made[7], *made[2:5], *made] == once


@pytest.mark.parametrize("token", [-1, 2**32, 1.5, "a", None])
def test_what_is_no_token_id_is_refused(token: object) -> None:
    with pytest.raises(ValueError, match="a token id"):
        pack_tokens([token])  # type: ignore[list-item]


def test_torn_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="5 bytes is not a multiple of 4"):
        unpack_tokens(b"12345")
    with pytest.raises(ValueError, match="12 bytes is not a multiple of 8"):
        unpack_hashes(b"123456789012")
