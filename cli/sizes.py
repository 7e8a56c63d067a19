"""Sizes in bytes as people write and read them: 512MiB, 1.5GB, 8Gi, 4096."""

import re

_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])(i?))?B?", re.ASCII | re.IGNORECASE)


def parse_size(text: str, *, allow_zero: bool = False) -> int:
    """Bytes; K, M, G and T are powers of 1000, Ki, Mi, Gi and Ti of 1024, and B may follow.

    Raises:
        ValueError: the text is no size, or less than one byte and not allowed to be zero.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"{text!r} is no size; write for example 512MiB, 1.5GB or a number of bytes"
        )
    number, unit, binary = match.groups(default="")
    size = int(float(number) * (1024 if binary else 1000) ** _UNITS[unit.upper()])
    if size < 1 and not allow_zero:
        raise ValueError(f"{text!r} is less than one byte")
    return size


def size_text(size: int) -> str:
    """Bytes in four digits and the largest unit, of powers of 1024, that they reach."""
    unit = max(0, min(len(_BINARY) - 1, (size.bit_length() - 1) // 10))
    return f"{size / 1024**unit:.4g} {_BINARY[unit]}"
