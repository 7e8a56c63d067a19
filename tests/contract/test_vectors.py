"""The vectors are what the code computes, and the code is XXH3 as its specification has it."""

import json

import xxhash
from radixgate.namespace import Namespace
from radixgate.prefix import boundary_hashes, pack_tokens

from tests.contract import vectors


def test_the_committed_vectors_are_what_the_code_computes() -> None:
    assert json.loads(vectors.PATH.read_text()) == vectors.build()


def test_a_vector_made_by_hand() -> None:
    tokens = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    raw = b"".join(token.to_bytes(4, "little") for token in tokens)
    canonical = b"\x01\0\0\0m" + b"\0\0\0\0" + b"\x01\0\0\0t" + b"\0\0\0\0"
    seed = xxhash.xxh3_64_intdigest(canonical)
    expected = [xxhash.xxh3_64_intdigest(raw[:size], seed) for size in (16, 32)]
    assert boundary_hashes(pack_tokens(tokens), 4, Namespace("m", tenant="t").seed()) == expected


def test_xxh3_of_nothing_is_what_its_authors_published() -> None:
    assert xxhash.xxh3_64_intdigest(b"") == 0x2D06800538D394C2
