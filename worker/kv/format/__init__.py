"""KV formats: how keys and values are laid out in memory, chosen by name."""

from worker.kv.format.base import KVFormat, KVShape, LayerKV
from worker.kv.format.int8 import Int8Format
from worker.kv.format.none import NoneFormat

__all__ = ["FORMATS", "KVFormat", "KVShape", "LayerKV", "by_name"]

FORMATS: dict[str, KVFormat] = {kind.name: kind for kind in (NoneFormat(), Int8Format())}


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
