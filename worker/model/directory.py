"""A Hugging Face model directory: whether it is complete, before anything heavy reads it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
WEIGHTS_INDEX = "model.safetensors.index.json"

# A safetensors file: a little-endian uint64, that many bytes of JSON, then the tensors.
_LENGTH_BYTES = 8


class ModelError(ValueError):
    """A model directory that cannot be served; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class ModelDirectory:
    """A complete directory.

    Args:
        path: of the directory.
        config: the content of config.json.
        weights: all safetensors files of the model, sorted by name.
    """

    path: Path
    config: dict[str, Any]
    weights: tuple[Path, ...]

    @property
    def tokenizer(self) -> Path:
        """tokenizer.json of the `tokenizers` library."""
        return self.path / TOKENIZER


def open_directory(path: Path) -> ModelDirectory:
    """Check that `path` holds a whole model; reads headers, no weights.

    Raises:
        ModelError: it is missing, or a file is missing, cut short or not what it should be.
    """
    if not path.is_dir():
        raise ModelError(
            f"model directory {path} does not exist; `radixgate model pull REF` fetches a model"
        )
    for name in (CONFIG, TOKENIZER):
        if not (path / name).is_file():
            raise _incomplete(path, f"{name} is missing")
    config = read_json(path / CONFIG)
    weights = _weights(path)
    for file in weights:
        _check_length(file)
    return ModelDirectory(path, config, weights)


def read_header(file: Path) -> bytes:
    """The JSON header of a safetensors file.

    Raises:
        ModelError: the file ends inside it.
    """
    with file.open("rb") as source:
        length = int.from_bytes(source.read(_LENGTH_BYTES), "little")
        if _LENGTH_BYTES + length > file.stat().st_size:
            raise _incomplete(file.parent, f"{file.name} ends inside its header")
        return source.read(length)


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file of a model directory.

    Raises:
        ModelError: there is none.
    """
    try:
        content = json.loads(file.read_bytes())
    except ValueError as error:
        raise _incomplete(file.parent, f"{file.name} is not valid JSON ({error})") from error
    if not isinstance(content, dict):
        raise _incomplete(file.parent, f"{file.name} is not a JSON object")
    return content


def _weights(path: Path) -> tuple[Path, ...]:
    index = path / WEIGHTS_INDEX
    if index.is_file():
        shards = read_json(index).get("weight_map", {})
        files = tuple(path / name for name in sorted(set(shards.values())))
        absent = [file.name for file in files if not file.is_file()]
        if absent:
            raise _incomplete(path, f"{WEIGHTS_INDEX} lists {', '.join(absent)}, not there")
    else:
        files = tuple(sorted(path.glob("*.safetensors")))
    if not files:
        raise _incomplete(path, "there is no *.safetensors file, the only kind of weights read")
    return files


def _check_length(file: Path) -> None:
    header = read_header(file)
    try:
        tensors = [entry for name, entry in json.loads(header).items() if name != "__metadata__"]
        data = max((entry["data_offsets"][1] for entry in tensors), default=0)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ModelError(f"{file} is not a safetensors file: its header is unreadable") from error
    found, expected = file.stat().st_size, _LENGTH_BYTES + len(header) + data
    if found < expected:
        raise _incomplete(file.parent, f"{file.name} has {found} of {expected} bytes")


def _incomplete(path: Path, why: str) -> ModelError:
    return ModelError(f"model directory {path} is incomplete: {why}; pull it again")
