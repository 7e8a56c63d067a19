"""Model directories written by hand: complete in form, though no model."""

import json
from pathlib import Path


def safetensors(data: bytes) -> bytes:
    """A safetensors file with one tensor of bytes."""
    tensor = {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}
    header = json.dumps({"__metadata__": {"format": "pt"}, "weight": tensor}).encode()
    return len(header).to_bytes(8, "little") + header + data


def write_directory(path: Path, config: dict[str, object], data: bytes = b"weights") -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer.json").write_text("{}")
    (path / "model.safetensors").write_bytes(safetensors(data))
    return path
