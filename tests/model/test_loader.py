"""The loader reads what a model is, and refuses what it would serve wrong."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.model.directories import write_directory
from tests.models import MAX_CONTEXT, VOCAB_SIZE
from worker.attention.numba_backend import NumbaAttention
from worker.kernels.panels import Linear
from worker.kv.format import KVShape
from worker.model.compiled import CompiledModel
from worker.model.directory import ModelError
from worker.model.loader import load_model
from worker.model.paged import TransformersModel, paged_attention
from worker.model.weights import WeightFormat

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
SMALL = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 32,
    "max_position_embeddings": 64,
}


def test_the_spec_is_the_models(tiny_llama: Path, tiny_qwen3: Path) -> None:
    llama, qwen3 = (load_model(path, CPU).spec for path in (tiny_llama, tiny_qwen3))
    assert (llama.layers, llama.heads, llama.kv_heads, llama.head_dim) == (2, 4, 2, 16)
    assert (llama.vocab_size, llama.max_context) == (VOCAB_SIZE, MAX_CONTEXT)
    assert llama.eos_token_ids == {2}
    assert llama.name == "tiny-llama"
    assert llama.kv_shape(16) == KVShape(2, 2, 16, 16)
    assert llama.fingerprint != qwen3.fingerprint


UNSUPPORTED = {
    "bloom": ({}, "transformers cannot exchange its attention"),
    "mamba": ({}, "transformers cannot exchange its attention"),
    "gemma2": ({}, "it has layers of the kind sliding_attention"),
    "mistral": ({"sliding_window": 32}, "its attention sees only the last 32 tokens"),
    "llama": (
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
        "rotary embedding of type dynamic changes with the batch",
    ),
    "deepseek_v3": ({}, "its keys and values differ in shape"),
    "vit": ({}, "it is not a causal language model"),
    "perceptron": ({}, "architecture 'perceptron', unknown to transformers"),
}


@pytest.mark.parametrize("kind", list(UNSUPPORTED))
def test_an_architecture_that_would_go_wrong_is_refused(tmp_path: Path, kind: str) -> None:
    config, message = UNSUPPORTED[kind]
    path = write_directory(tmp_path / "model", {"model_type": kind, **SMALL, **config})
    with pytest.raises(ModelError, match=message):
        load_model(path, CPU)


def test_keys_and_values_of_different_shapes_are_refused_in_the_attention_too() -> None:
    rows, wider = torch.zeros(1, 2, 3, 8), torch.zeros(1, 2, 3, 16)
    step: Any = None
    with pytest.raises(ModelError, match="keys and values differ in shape"):
        paged_attention(torch.nn.Identity(), rows, rows, wider, None, paged=step)


def test_wrong_logits_do_not_pass_the_proof(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, attend = CompiledModel.forward, NumbaAttention.attend

    def wrong(self: CompiledModel, *step: Any) -> Tensor:
        return 2 * compiled(self, *step)

    def wrong_too(self: NumbaAttention, queries: Tensor, *rest: Tensor, **more: Any) -> Tensor:
        return attend(self, 2 * queries, *rest, **more)

    monkeypatch.setattr(CompiledModel, "forward", wrong)
    assert isinstance(load_model(tiny_llama, CPU), TransformersModel)
    monkeypatch.setattr(NumbaAttention, "attend", wrong_too)
    with pytest.raises(ModelError, match=r"over paged KV its logits are off by \d"):
        load_model(tiny_llama, CPU)


@pytest.mark.parametrize(
    ("device", "dtype"), [("cuda", None), ("cuda", torch.float32), ("cpu", torch.bfloat16)]
)
def test_int8_weights_are_for_float32_on_a_cpu(
    tiny_llama: Path, device: str, dtype: torch.dtype | None
) -> None:
    with pytest.raises(ModelError, match=rf"not for {device} in torch\..*--weights float32"):
        load_model(tiny_llama, torch.device(device), dtype, WeightFormat.INT8)


def test_a_wrong_model_gets_no_int8_weights(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounded, forward = Linear.rounded, CompiledModel.forward

    def coarse(self: Linear) -> Linear:
        result = rounded(self)
        return result._replace(panels=result.panels // 64 * 64)

    def slightly_wrong(self: CompiledModel, *step: Any) -> Tensor:
        return 1.02 * forward(self, *step)

    monkeypatch.setattr(Linear, "rounded", coarse)
    with pytest.raises(ModelError, match=r"with int8 weights the logits of .* are off by \d"):
        load_model(tiny_llama, CPU, weights=WeightFormat.INT8)
    monkeypatch.undo()
    monkeypatch.setattr(CompiledModel, "forward", slightly_wrong)
    with pytest.raises(ModelError, match=r"which tiny-llama is not .* logits are off by 2\.00%"):
        load_model(tiny_llama, CPU, weights=WeightFormat.INT8)


def test_weights_that_lack_a_tensor_are_refused(tiny_llama: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(tiny_llama, tmp_path / "model"))
    weights = load_file(path / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 1 weights, such as model\.norm\.weight"):
        load_model(path, CPU)


def test_a_cut_off_download_is_refused(tiny_llama: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(tiny_llama, tmp_path / "model"))
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(ModelError, match=r"has \d+ of \d+ bytes; pull it again"):
        load_model(path, CPU)
