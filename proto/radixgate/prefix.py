"""Prefix hashes: the 64-bit names of prompt prefixes.

The hash of a prefix is XXH3-64 of its tokens as little-endian uint32, seeded by its namespace. It
is taken at every boundary, a whole multiple of `stride` tokens. It names the whole prefix, so any
boundary can be probed alone. `vectors.json` beside this file has test vectors for other languages.
"""

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import iter_unpack
from typing import NewType, cast, overload

import xxhash

from radixgate.namespace import NamespaceSeed

PrefixHash = NewType("PrefixHash", int)

TOKEN_BYTES = 4
HASH_BYTES = 8
MAX_TOKEN_ID = 2**32 - 1


def pack_tokens(ids: Iterable[int]) -> bytes:
    """Token ids as little-endian uint32.

    Raises:
        ValueError: an id is not an integer in [0, 2**32).
    """
    return _pack("I", ids, f"a token id outside [0, {MAX_TOKEN_ID}]")


def unpack_tokens(packed: bytes | bytearray | memoryview) -> list[int]:
    """The inverse of `pack_tokens`.

    Raises:
        ValueError: the length is not a whole number of tokens.
    """
    return _unpack("I", TOKEN_BYTES, packed, "token ids")


def pack_hashes(hashes: Iterable[int]) -> bytes:
    """Prefix hashes as little-endian uint64, as `KvSync` carries them."""
    return _pack("Q", hashes, "a prefix hash outside 64 bits")


def unpack_hashes(packed: bytes) -> list[PrefixHash]:
    """The inverse of `pack_hashes`.

    Raises:
        ValueError: the length is not a whole number of hashes.
    """
    return cast("list[PrefixHash]", _unpack("Q", HASH_BYTES, packed, "prefix hashes"))


def prefix_hash(packed: bytes | memoryview, tokens: int, seed: NamespaceSeed) -> PrefixHash:
    """The hash of the first `tokens` tokens of `packed`, which must hold at least that many."""
    view = memoryview(packed)[: tokens * TOKEN_BYTES]
    return PrefixHash(xxhash.xxh3_64_intdigest(view, seed))


def boundary_hashes(packed: bytes, stride: int, seed: NamespaceSeed) -> list[PrefixHash]:
    """The hashes of all len(tokens) // stride boundaries of `packed`, shortest prefix first."""
    return PrefixHasher(stride, seed).update(packed)


class PrefixHasher:
    """Streams tokens in and gives the hash of each boundary as it is passed; linear in all."""

    def __init__(self, stride: int, seed: NamespaceSeed) -> None:
        self._stride_bytes = stride * TOKEN_BYTES
        self._state = xxhash.xxh3_64(seed=seed)
        self._length = 0

    def update(self, packed: bytes | bytearray | memoryview) -> list[PrefixHash]:
        """Append `packed` tokens; the hashes of the boundaries they complete, shortest first."""
        completed: list[PrefixHash] = []
        view = memoryview(packed)
        update = self._state.update
        digest = cast("Callable[[], PrefixHash]", self._state.intdigest)
        missing = -self._length % self._stride_bytes
        self._length += len(view)
        if missing:
            head, view = view[:missing], view[missing:]
            update(head)
            if len(head) == missing:
                completed.append(digest())
        whole = len(view) - len(view) % self._stride_bytes
        for stride in iter_unpack(f"{self._stride_bytes}s", view[:whole]):
            update(*stride)
            completed.append(digest())
        update(view[whole:])
        return completed


class BoundaryHashes(Sequence[PrefixHash]):
    """The hashes of a prompt's boundaries, shortest prefix first, made when they are asked for.

    One alone costs a pass over its prefix, at memory speed; the first slice makes all of them.

    Args: `packed` token ids as little-endian uint32; `stride` in tokens; `seed` of the namespace.
    """

    def __init__(self, packed: bytes, stride: int, seed: NamespaceSeed) -> None:
        self._packed, self._stride, self._seed = packed, stride, seed
        self._made: list[PrefixHash | None] = [None] * (len(packed) // (stride * TOKEN_BYTES))

    def __len__(self) -> int:
        return len(self._made)

    def __iter__(self) -> Iterator[PrefixHash]:
        return iter(self[:])

    @overload
    def __getitem__(self, at: int) -> PrefixHash: ...
    @overload
    def __getitem__(self, at: slice) -> list[PrefixHash]: ...
    def __getitem__(self, at: int | slice) -> PrefixHash | list[PrefixHash]:
        if isinstance(at, slice):
            if None in self._made[at]:
                self._made[:] = boundary_hashes(self._packed, self._stride, self._seed)
            return cast("list[PrefixHash]", self._made[at])
        made = self._made[at]
        if made is None:
            count = range(1, len(self._made) + 1)[at]
            made = self._made[at] = prefix_hash(self._packed, count * self._stride, self._seed)
        return made


def _pack(typecode: str, values: Iterable[int], wrong: str) -> bytes:
    try:
        packed = array(typecode, values)
    except (OverflowError, TypeError) as error:
        raise ValueError(f"{wrong}: {error}") from error
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _unpack(
    typecode: str, size: int, packed: bytes | bytearray | memoryview, what: str
) -> list[int]:
    if len(packed) % size:
        raise ValueError(f"{what}: {len(packed)} bytes is not a multiple of {size}")
    values: array[int] = array(typecode)
    values.frombytes(packed)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()
