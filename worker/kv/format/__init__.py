"""KV formats: how keys and values are laid out in memory, chosen by name."""

from worker.kv.format.base import KVShape, Rows
from worker.kv.format.int4 import Int4Rows, RotatedInt4Rows
from worker.kv.format.layer import KVFormat, LayerKV
from worker.kv.format.names import KEYS, NAMES, VALUES, by_name
from worker.kv.format.none import NoneRows
from worker.kv.format.scaled import Fp8Rows, Int8Rows, RotatedInt8Rows, ScaledRows

__all__ = [
    "KEYS",
    "NAMES",
    "VALUES",
    "Fp8Rows",
    "Int4Rows",
    "Int8Rows",
    "KVFormat",
    "KVShape",
    "LayerKV",
    "NoneRows",
    "RotatedInt4Rows",
    "RotatedInt8Rows",
    "Rows",
    "ScaledRows",
    "by_name",
]
