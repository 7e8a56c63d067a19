"""Test vectors of the contract's hashes, for implementations in other languages.

`python -m tests.contract.vectors` rewrites `proto/radixgate/vectors.json`. That is right only when
the contract itself changes: old hashes in Redis and in running workers would no longer match.
"""

import json
from pathlib import Path
from typing import Any

import radixgate
from radixgate.digest import SetDigest
from radixgate.namespace import Namespace
from radixgate.prefix import boundary_hashes, pack_tokens

PATH = Path(radixgate.__file__).with_name("vectors.json")

NAMESPACES = [
    Namespace(""),
    Namespace("0123456789abcdef0123456789abcdef"),
    Namespace("0123456789abcdef0123456789abcdef", tenant="a"),
    Namespace("0123456789abcdef0123456789abcdef", salt="a"),
    Namespace("f", adapter="lora", tenant="größe", salt="塩\0"),
]
PROMPTS = {
    "shorter than one stride": list(range(3)),
    "exactly one stride": list(range(4)),
    "ids of every byte length": [0, 255, 256, 65_535, 65_536, 2**24, 2**31, 2**32 - 1],
    "many strides": [token * 7_919 % 50_000 for token in range(1_000)],
}
STRIDES = {"many strides": 64}
DEFAULT_STRIDE = 4


def build() -> dict[str, Any]:
    """All vectors; 64-bit values are hexadecimal strings, since JSON numbers lose bits."""
    return {
        "about": "radixgate: namespace seeds, prefix hashes, set digests; 64-bit values as hex",
        "namespaces": [
            {**space._asdict(), "canonical": space.canonical().hex(), "seed": _hex(space.seed())}
            for space in NAMESPACES
        ],
        "prefixes": [_prefix(space, name) for space in NAMESPACES[1::3] for name in PROMPTS],
        "digests": [_digest(hashes) for hashes in ([], [1], [1, 2, 2**64 - 1])],
    }


def _prefix(space: Namespace, name: str) -> dict[str, Any]:
    tokens, stride = PROMPTS[name], STRIDES.get(name, DEFAULT_STRIDE)
    hashes = boundary_hashes(pack_tokens(tokens), stride, space.seed())
    return {
        "name": name,
        "seed": _hex(space.seed()),
        "stride": stride,
        "tokens": tokens,
        "hashes": [_hex(value) for value in hashes],
    }


def _digest(hashes: list[int]) -> dict[str, Any]:
    digest = SetDigest.of(hashes)
    return {"hashes": list(map(_hex, hashes)), "count": digest.count, "xor": _hex(digest.xor)}


def _hex(value: int) -> str:
    return f"0x{value:016x}"


def write() -> None:
    """Write the file, one vector a line."""
    sections = build()
    about = sections.pop("about")
    lists = (
        f"{json.dumps(name)}: [\n" + ",\n".join(map(json.dumps, vectors)) + "\n]"
        for name, vectors in sections.items()
    )
    PATH.write_text("{" + ",\n".join([f'"about": {json.dumps(about)}', *lists]) + "}\n")


if __name__ == "__main__":
    write()
