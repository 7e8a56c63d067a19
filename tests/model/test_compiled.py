"""Models of the Llama kind are compiled and stay what they were; others are run by transformers."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from tests.model.directories import write_directory
from worker.attention.torch_backend import TorchAttention
from worker.kv.format import by_name
from worker.model.compiled import CompiledModel, OtherKindError
from worker.model.directory import ModelError
from worker.model.loader import load_model
from worker.model.packed import PackedLinear, packed
from worker.model.paged import ATTENTION_NAME, TransformersModel
from worker.model.proof import own_logits, paged_logits
from worker.model.weights import WeightFormat

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CPU = torch.device("cpu")

# Sizes that no vector divides, and all that layers of this kind may have.
ODD = {
    "hidden_size": 60,
    "intermediate_size": 100,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 77,
    "max_position_embeddings": 128,
    "initializer_range": 0.4,
}
KINDS = {
    "tied": ("llama", {"tie_word_embeddings": True}),
    "biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "some biases": ("qwen2", {}),
    "norms of heads": ("qwen3", {"head_dim": 12}),
    "mistral": ("mistral", {"sliding_window": None}),
    "one head for all": ("llama", {"num_key_value_heads": 1}),
}


def save(path: Path, kind: str, **config: Any) -> Path:
    """A random model of a kind; transformers saves it as one would pull it."""
    write_directory(path, {})
    torch.manual_seed(1)
    model: Any = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **ODD | config))
    for name, weight in model.named_parameters():
        if name.endswith(("bias", "norm.weight")):
            nn.init.normal_(weight, 1.0)
    model.save_pretrained(path)
    return path


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_compiled_model_gives_the_logits_of_transformers(tmp_path: Path, kind: str) -> None:
    path = save(tmp_path / "model", KINDS[kind][0], **KINDS[kind][1])
    model = load_model(path, CPU)
    assert isinstance(model, CompiledModel)
    theirs: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    torch.testing.assert_close(paged_logits(model), own_logits(theirs), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("kind", list(KINDS))
def test_rounded_weights_change_the_logits_little(tmp_path: Path, kind: str) -> None:
    # NOTE: with wider weights, layers raise any error to a multiple.
    path = save(tmp_path / "model", KINDS[kind][0], **KINDS[kind][1], initializer_range=0.2)
    exact, rounded = (load_model(path, CPU, weights=weights) for weights in WeightFormat)
    assert isinstance(exact, CompiledModel)
    assert isinstance(rounded, CompiledModel)
    assert rounded.weight_bytes < exact.weight_bytes
    assert rounded.spec.fingerprint != exact.spec.fingerprint
    expected, found = paged_logits(exact), paged_logits(rounded)
    assert not torch.equal(found, expected)
    assert (found - expected).norm() < 0.06 * expected.norm()


@pytest.mark.parametrize("layers", ["0:int8", "1:k8v4", "0-1:int4,2:fp8"])
def test_layers_of_any_formats_share_a_step(tmp_path: Path, layers: str) -> None:
    path = save(tmp_path / "model", "llama", head_dim=16)
    model = load_model(path, CPU)
    theirs: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    theirs.set_attn_implementation(ATTENTION_NAME)
    reference = TransformersModel(theirs, model.spec, TorchAttention())
    kv_format = by_name("none", layers)
    found, expected = paged_logits(model, kv_format), paged_logits(reference, kv_format)
    assert not torch.allclose(expected, paged_logits(reference), atol=0.05)
    assert torch.nn.functional.cosine_similarity(found, expected).min() > 0.999


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_gives_the_same(tiny_qwen3: Path, threads: int) -> None:
    model = load_model(tiny_qwen3, CPU)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        shared = paged_logits(model)
        torch.set_num_threads(1)
        torch.testing.assert_close(shared, paged_logits(model), atol=1e-5, rtol=1e-5)
    finally:
        torch.set_num_threads(before)


OTHERS = {
    # Another activation, no gate, or norms elsewhere: each has other parts, or other logits.
    "llama": {"hidden_act": "gelu"},
    "olmo2": {},
    "granite": {"embedding_multiplier": 3.0, "residual_multiplier": 0.5},
    "cohere": {},
    "phi3": {"pad_token_id": 0},
}


@pytest.mark.parametrize("kind", list(OTHERS))
def test_what_is_not_of_that_kind_is_left_to_transformers(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = save(tmp_path / "model", kind, **OTHERS[kind])
    with caplog.at_level(logging.INFO):
        model = load_model(path, CPU)
    assert isinstance(model, TransformersModel)
    assert not any(isinstance(module, nn.Linear) for module in model.module.modules())
    assert "are not compiled" in caplog.text
    theirs: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    torch.testing.assert_close(paged_logits(model), own_logits(theirs), atol=1e-3, rtol=1e-3)


def test_what_is_not_compiled_has_no_rounded_weights(tmp_path: Path) -> None:
    path = save(tmp_path / "model", "cohere")
    with pytest.raises(ModelError, match=r"models that are compiled, which model is not .*float32"):
        load_model(path, CPU, weights=WeightFormat.INT8)


def test_layers_that_differ_are_not_compiled(tiny_llama: Path) -> None:
    spec = load_model(tiny_llama, CPU).spec
    model: Any = AutoModelForCausalLM.from_pretrained(tiny_llama, dtype=torch.float32)
    model.model.layers[1].mlp.up_proj = nn.Linear(64, 32)
    with pytest.raises(OtherKindError):
        CompiledModel(model, spec)


@pytest.mark.parametrize("rows", [1, 2, 7, 300])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("outputs", "inputs"), [(96, 64), (7, 33), (1, 5)])
@torch.inference_mode()
def test_a_packed_layer_is_the_layer(rows: int, bias: bool, outputs: int, inputs: int) -> None:
    linear = nn.Linear(inputs, outputs, bias=bias)
    x = torch.randn(rows, inputs)
    layer = packed(linear)
    assert isinstance(layer, PackedLinear)
    torch.testing.assert_close(layer(x), linear(x))
    torch.testing.assert_close(layer(x[None]), linear(x)[None])
