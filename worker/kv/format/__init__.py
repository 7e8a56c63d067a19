"""KV formats: how keys and values are laid out in memory, chosen by name."""

from worker.kv.format.base import KVShape, Rows
from worker.kv.format.int8 import Int8Rows
from worker.kv.format.layer import KVFormat, LayerFormat, LayerKV
from worker.kv.format.none import NoneRows

__all__ = ["FORMATS", "Int8Rows", "KVFormat", "KVShape", "LayerKV", "NoneRows", "Rows", "by_name"]

FORMATS: dict[str, KVFormat] = {
    name: KVFormat(name, LayerFormat(rows, rows))
    for name, rows in (("none", NoneRows), ("int8", Int8Rows))
}


def by_name(name: str) -> KVFormat:
    """The format that `--kv-format` names.

    Raises:
        ValueError: there is none of that name.
    """
    try:
        return FORMATS[name]
    except KeyError:
        known = ", ".join(FORMATS)
        raise ValueError(f"KV format {name!r} is unknown; there are: {known}") from None
