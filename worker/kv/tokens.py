"""The tokens of one sequence, growing, with the hash of every boundary that they have passed."""

from functools import lru_cache

from radixgate.namespace import Namespace, NamespaceSeed
from radixgate.prefix import (
    MAX_TOKEN_ID,
    TOKEN_BYTES,
    PrefixHash,
    PrefixHasher,
    unpack_tokens,
)


@lru_cache(1024)
def _content_seed(tenant: str) -> NamespaceSeed:
    return Namespace("", tenant=tenant).seed()


class Tokens:
    """Append only; a prefix never changes once it is there.

    Args:
        seed: of the namespace that the sequence lives in.
        stride: tokens from one boundary to the next.
        tenant: whose memory they count as; one namespace has one tenant.

    Attributes:
        length: how many there are.
        packed: all tokens as little-endian uint32. Only this class changes it.
        hashes: one for each whole `stride` tokens, shortest prefix first.
        contents: as `hashes`, but equal for all namespaces of the tenant. The same list where the
            namespace has nothing but the tenant.
    """

    def __init__(self, seed: NamespaceSeed, stride: int, tenant: str = "") -> None:
        self.seed = seed
        self.stride = stride
        self.tenant = tenant
        self.length = 0
        self.packed = bytearray()
        self.hashes: list[PrefixHash] = []
        self.contents: list[PrefixHash] = []
        self._stride_bytes = stride * TOKEN_BYTES
        self._hasher = PrefixHasher(stride, seed)
        self._content_hasher: PrefixHasher | None = None
        content_seed = _content_seed(tenant)
        if seed == content_seed:
            self.contents = self.hashes
        else:
            self._content_hasher = PrefixHasher(stride, content_seed)

    def __len__(self) -> int:
        return self.length

    def append(self, token: int) -> None:
        """Add one token id.

        Raises:
            ValueError: it is outside [0, 2**32).
        """
        try:
            packed = token.to_bytes(TOKEN_BYTES, "little")
        except OverflowError as error:
            raise ValueError(f"token id {token} is outside [0, {MAX_TOKEN_ID}]") from error
        self._add(packed)

    def extend(self, packed: bytes) -> None:
        """Add token ids that are packed as little-endian uint32.

        Raises:
            ValueError: the length is not a whole number of tokens.
        """
        if len(packed) % TOKEN_BYTES:
            raise ValueError(f"token ids: {len(packed)} bytes is not a multiple of {TOKEN_BYTES}")
        self._add(packed)

    def ids(self, start: int = 0, stop: int | None = None) -> list[int]:
        """The token ids at positions [start, stop), to the end when `stop` is None."""
        last = None if stop is None else stop * TOKEN_BYTES
        return unpack_tokens(self.packed[start * TOKEN_BYTES : last])

    def _add(self, packed: bytes) -> None:
        self.packed += packed
        self.length = len(self.packed) // TOKEN_BYTES
        hashed = len(self.hashes) * self._stride_bytes
        if len(self.packed) - hashed >= self._stride_bytes:
            whole = len(self.packed) // self._stride_bytes * self._stride_bytes
            with memoryview(self.packed) as view, view[hashed:whole] as passed:
                self.hashes += self._hasher.update(passed)
                if self._content_hasher is not None:
                    self.contents += self._content_hasher.update(passed)
