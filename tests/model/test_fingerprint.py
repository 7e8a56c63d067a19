"""The fingerprint names the model, not the place or the version that wrote it."""

import shutil
from pathlib import Path

import pytest

from tests.model.directories import safetensors, write_directory
from worker.model.directory import open_directory
from worker.model.fingerprint import fingerprint
from worker.model.weights import WeightFormat

CONFIG: dict[str, object] = {"model_type": "llama", "rope_theta": 1e4, "dtype": "float32"}
BIG = bytes(range(256)) * 4096


def of(path: Path) -> str:
    return fingerprint(open_directory(path))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_directory(tmp_path / "model", CONFIG, BIG)


def test_a_copy_has_the_same(model: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(model, tmp_path / "elsewhere"))
    assert of(copy) == of(model)
    assert len(of(model)) == 32


def test_what_does_not_change_the_kv_does_not_count(model: Path, tmp_path: Path) -> None:
    other = dict(reversed(CONFIG.items())) | {"transformers_version": "9", "dtype": "bfloat16"}
    assert of(write_directory(tmp_path / "other", other, BIG)) == of(model)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b'{"model_type": "llama", "rope_theta": 1e5}'),
        ("tokenizer.json", b'{"other": 1}'),
        ("model.safetensors", safetensors(b"!" + BIG[1:])),
        ("model.safetensors", safetensors(BIG[:-1] + b"!")),
        ("model.safetensors", safetensors(BIG + b"longer")),
    ],
)
def test_each_part_counts(model: Path, name: str, content: bytes) -> None:
    before = of(model)
    (model / name).write_bytes(content)
    assert of(model) != before


def test_rounded_weights_are_another_model(model: Path) -> None:
    directory = open_directory(model)
    exact, rounded = (fingerprint(directory, weights) for weights in WeightFormat)
    assert exact == of(model) != rounded


def test_weights_smaller_than_a_page_count_too(tmp_path: Path) -> None:
    small = [write_directory(tmp_path / data.decode(), CONFIG, data) for data in (b"a", b"b")]
    assert of(small[0]) != of(small[1])
