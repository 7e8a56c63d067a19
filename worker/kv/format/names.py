"""KV formats by name: as `--kv-format` and `--kv-format-layers` give them.

int8                     keys and values
int8/int4, short k8v4    keys/values
"""

import re
from collections.abc import Iterator

from worker.kv.format.base import Rows
from worker.kv.format.int4 import Int4Rows, RotatedInt4Rows
from worker.kv.format.layer import KVFormat, LayerFormat
from worker.kv.format.none import NoneRows
from worker.kv.format.scaled import Fp8Rows, Int8Rows, RotatedInt8Rows

KEYS: dict[str, type[Rows]] = {
    "none": NoneRows,
    "fp8": Fp8Rows,
    "int8": RotatedInt8Rows,
    "int4": RotatedInt4Rows,
}
VALUES: dict[str, type[Rows]] = KEYS | {"int8": Int8Rows, "int4": Int4Rows}

_SHORT = {"k8v4": "int8/int4"}

# All but the pairs that have no short name.
NAMES = (*KEYS, *_SHORT)

_LAYERS = re.compile(r"(\d+)(?:-(\d+))?")


def by_name(name: str, layers: str = "") -> KVFormat:
    """The format that `name` says, but for some layers.

    Args:
        name: one format, or two for keys and values.
        layers: exceptions, as in `0-1,28-29:none`: numbers and ranges of layers, counted from 0,
            and after a colon the name of their format; more may follow after a comma.

    Raises:
        ValueError: there is no such format, or `layers` is not of that form.
    """
    if not layers:
        return KVFormat(name, _layer_format(name))
    exceptions: dict[int, LayerFormat] = {}
    for layer, its_format in _exceptions(layers):
        if layer in exceptions:
            raise ValueError(f"KV format layers {layers!r} name layer {layer} twice")
        exceptions[layer] = its_format
    return KVFormat(f"{name} ({layers})", _layer_format(name), exceptions)


def _layer_format(name: str) -> LayerFormat:
    keys, slash, values = _SHORT.get(name, name).partition("/")
    try:
        return LayerFormat(KEYS[keys], VALUES[values if slash else keys])
    except KeyError:
        raise ValueError(
            f"KV format {name!r} is unknown; there are: {', '.join(NAMES)}, "
            f"and pairs for keys/values such as int8/fp8"
        ) from None


def _exceptions(layers: str) -> Iterator[tuple[int, LayerFormat]]:
    """Layer after layer of a `layers` argument, with its format."""
    waiting: list[int] = []
    for item in layers.split(","):
        span, colon, name = item.partition(":")
        found = _LAYERS.fullmatch(span)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if first > last:
            raise ValueError(
                f"KV format layers {layers!r}: {span!r} is not a layer or a range of layers; "
                f"an example is 0-1,28-29:none"
            )
        waiting += range(first, last + 1)
        if colon:
            its_format = _layer_format(name)
            yield from ((layer, its_format) for layer in waiting)
            waiting = []
    if waiting:
        raise ValueError(
            f"KV format layers {layers!r} name no format for the last of them; "
            f"an example is 0-1,28-29:none"
        )
