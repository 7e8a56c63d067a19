"""A model directory is taken when it is whole, and refused with the file that is not."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.model.directories import safetensors, write_directory
from worker.model.directory import ModelError, open_directory


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return write_directory(tmp_path / "model", {"model_type": "llama"})


def test_a_whole_directory_opens(whole: Path) -> None:
    model = open_directory(whole)
    assert model.path == whole
    assert model.config == {"model_type": "llama"}
    assert model.weights == (whole / "model.safetensors",)
    assert model.tokenizer == whole / "tokenizer.json"


def test_shards_come_from_the_index(whole: Path) -> None:
    (whole / "model.safetensors").rename(whole / "a.safetensors")
    (whole / "b.safetensors").write_bytes(safetensors(b"more"))
    (whole / "other.safetensors").write_bytes(safetensors(b"of no part"))
    index = {"weight_map": {"x": "b.safetensors", "y": "a.safetensors", "z": "b.safetensors"}}
    (whole / "model.safetensors.index.json").write_text(json.dumps(index))
    assert [file.name for file in open_directory(whole).weights] == [
        "a.safetensors",
        "b.safetensors",
    ]


def test_a_missing_directory_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"does not exist; .*model pull"):
        open_directory(tmp_path / "none")


def remove(name: str) -> Callable[[Path], None]:
    return lambda path: (path / name).unlink()


def replace(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda path: (path / name).write_bytes(content)


INDEX = json.dumps({"weight_map": {"x": "model.safetensors", "y": "b.safetensors"}}).encode()

HEADERS = [(2).to_bytes(8, "little") + text for text in (b"[]", b"no")]

BROKEN = [
    (remove("config.json"), "config.json is missing"),
    (replace("config.json", b"{"), "config.json is not valid JSON"),
    (replace("config.json", b"[]"), "config.json is not a JSON object"),
    (remove("tokenizer.json"), "tokenizer.json is missing"),
    (remove("model.safetensors"), r"there is no \*.safetensors file"),
    (replace("model.safetensors.index.json", INDEX), "lists b.safetensors, not there"),
    (replace("model.safetensors", b""), "ends inside its header"),
    (replace("model.safetensors", safetensors(b"1")[:20]), "ends inside its header"),
    (replace("model.safetensors", safetensors(b"12")[:-1]), r"has (\d+) of \d+ bytes"),
    (replace("model.safetensors", HEADERS[0]), "is not a safetensors file"),
    (replace("model.safetensors", HEADERS[1]), "is not a safetensors file"),
]


@pytest.mark.parametrize(("damage", "message"), BROKEN)
def test_half_a_directory_is_refused(
    whole: Path, damage: Callable[[Path], object], message: str
) -> None:
    damage(whole)
    with pytest.raises(ModelError, match=message):
        open_directory(whole)
