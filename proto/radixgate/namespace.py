"""The namespace: everything that must be equal for two KV prefixes to be interchangeable.

Canonical bytes are the four fields in the order below, each as a little-endian uint32 byte count
followed by its UTF-8 bytes. XXH3-64 of them (seed 0) is the seed of every prefix hash inside.
"""

from typing import NamedTuple, NewType

import xxhash

NamespaceSeed = NewType("NamespaceSeed", int)


class Namespace(NamedTuple):
    """Args: `fingerprint` of the model; `adapter`, `tenant`, `salt` as in the `Scope` message."""

    fingerprint: str
    adapter: str = ""
    tenant: str = ""
    salt: str = ""

    def canonical(self) -> bytes:
        """Bytes that differ whenever any field differs."""
        fields = (field.encode() for field in self)
        return b"".join(len(field).to_bytes(4, "little") + field for field in fields)

    def seed(self) -> NamespaceSeed:
        """The seed of the prefix hashes inside this namespace, an unsigned 64-bit integer."""
        return NamespaceSeed(xxhash.xxh3_64_intdigest(self.canonical()))
