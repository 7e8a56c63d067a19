"""`radixgate plan`: from a config.json to a table, JSON and a plot."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.cli.conftest import Run

LLAMA_3_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return write(tmp_path / "Llama-3-8B" / "config.json", LLAMA_3_8B)


def write(file: Path, config: dict[str, Any]) -> Path:
    file.parent.mkdir()
    file.write_text(json.dumps(config))
    return file


def test_the_table_fits_into_80_columns(
    run: Run, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = run("plan", "--model", str(llama), "--gpu-memory", "80GiB")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "Llama-3-8B · KV of 32 layers x 8 heads x 128 · bfloat16"
    assert lines[1] == "80 GiB - 14.96 GiB weights - 8 GiB reserve = 57.04 GiB for KV"
    rows = [line.split() for line in lines]
    assert ["none", "16", "128", "KiB", "467,280", "228", "57"] in rows
    assert ["int8", "8.25", "66", "KiB", "906,256", "442", "110"] in rows
    assert max(map(len, lines)) <= 80


def test_json_has_every_number(run: Run, llama: Path) -> None:
    asked = "--gpu-memory 24GiB --weights 8GiB --reserve 1GiB --context 4096 --kv-format int4"
    found = json.loads(run("plan", "--model", str(llama.parent), *asked.split(), "--json").stdout)
    assert found["model"] == "Llama-3-8B"
    assert found["parameters"] == 8_030_261_248
    assert found["memory_bytes"]["kv"] == 15 * 2**30
    (fit,) = found["formats"]
    assert (fit["kv_format"], fit["bytes_per_token"]) == ("int4", 40 * 1024)
    assert fit["requests"] == {"4096": 15 * 2**30 // (40 * 1024) // 4096}


def test_all_of_the_memory_may_be_for_kv(run: Run, llama: Path) -> None:
    asked = "--gpu-memory 1GiB --weights 0 --reserve 0 --dtype float32 --kv-format none"
    found = json.loads(run("plan", "--model", str(llama), *asked.split(), "--json").stdout)
    assert found["formats"][0]["tokens"] == 2**30 // (256 * 1024)


def test_the_plot_is_an_svg_with_a_bar_for_each_number(
    run: Run, llama: Path, tmp_path: Path
) -> None:
    file = tmp_path / "plan.svg"
    asked = f"--model {llama} --gpu-memory 80GiB --kv-format none --kv-format int8 --plot {file}"
    assert run("plan", *asked.split()).exit_code == 0
    svg = ElementTree.parse(file).getroot()
    texts = [element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")]
    bars = [rect for rect in svg.iter("{http://www.w3.org/2000/svg}rect") if rect.get("width")][1:]
    assert "906,256 tokens" in texts
    widths = [float(bar.attrib["width"]) for bar in bars]
    assert len(widths) == 3 * 2
    assert widths[0] / widths[1] == pytest.approx(467_280 / 906_256, abs=0.001)


def test_a_context_that_the_model_does_not_take_is_noted(run: Run, llama: Path) -> None:
    asked = f"--model {llama} --gpu-memory 80GiB --context 10000"
    result = run("plan", *asked.split())
    assert result.exit_code == 0
    assert "takes contexts of up to 8192 tokens, less than 10000" in result.stderr


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("--gpu-memory 16GiB --reserve 2GiB", "leaves nothing for KV: 14.96 GiB are for weights"),
        ("--gpu-memory 80GiB --kv-format int3", "KV format 'int3' is unknown; there are: none"),
        ("--gpu-memory 80GiB --plot plan.png", "plots are SVG; name it plan.svg"),
        ("--gpu-memory 80", "leaves nothing for KV"),
        ("--gpu-memory lots", "'lots' is no size"),
        ("--gpu-memory 80GiB --kv-format-layers 40:none", "names layer 40; the model has layers"),
    ],
)
def test_what_cannot_be_planned(run: Run, llama: Path, asked: str, message: str) -> None:
    result = run("plan", "--model", str(llama), *asked.split())
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_a_model_without_a_config(run: Run, tmp_path: Path) -> None:
    result = run("plan", "--model", str(tmp_path), "--gpu-memory", "80GiB")
    assert result.exit_code == 2
    assert f"there is no config.json in {tmp_path}" in result.stderr
    result = run("plan", "--model", "some/model", "--gpu-memory", "80GiB")
    assert "get it with: radixgate model pull some/model" in result.stderr


def test_a_model_that_could_not_be_served(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "gemma" / "config.json", {"model_type": "gemma2"})
    result = run("plan", "--model", str(file), "--gpu-memory", "80GiB")
    assert result.exit_code == 2
    assert "architecture 'gemma2' is not supported" in result.stderr
