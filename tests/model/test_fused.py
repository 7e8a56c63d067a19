"""Packed and fused layers compute what they replace, and nothing is replaced that differs."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import silu
from transformers import AutoModelForCausalLM

from worker.model.fused import FusedLayer, fuse
from worker.model.packed import PackedLinear, pack, pack_together
from worker.model.paged import ATTENTION_NAME, paged_attention  # noqa: F401

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("rows", [1, 2, 7, 300])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("outputs", "inputs"), [(96, 64), (7, 33), (1, 5)])
@torch.inference_mode()
def test_a_packed_layer_is_the_layer(rows: int, bias: bool, outputs: int, inputs: int) -> None:
    linear = nn.Linear(inputs, outputs, bias=bias)
    packed, x, other = pack(linear), torch.randn(rows, inputs), torch.randn(rows, outputs)
    expected = linear(x)
    torch.testing.assert_close(packed(x), expected)
    torch.testing.assert_close(packed(x[None]), expected[None])
    torch.testing.assert_close(packed.silu(x), silu(expected))
    torch.testing.assert_close(packed.times(x, other), expected * other)
    torch.testing.assert_close(packed.plus(x, other), expected + other)


@torch.inference_mode()
def test_layers_packed_together_give_their_outputs_side_by_side() -> None:
    linears, x = [nn.Linear(8, outputs) for outputs in (5, 3)], torch.randn(4, 8)
    expected = torch.cat([linear(x) for linear in linears], dim=-1)
    torch.testing.assert_close(pack_together(*linears)(x), expected)
    with pytest.raises(ValueError, match="some of the layers have a bias"):
        pack_together(nn.Linear(2, 2), nn.Linear(2, 2, bias=False))


def load(path: Path) -> Any:
    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    model.set_attn_implementation(ATTENTION_NAME)
    return model


def fused_layers(model: nn.Module) -> list[int]:
    layers = model.model.layers
    return [index for index, layer in enumerate(layers) if isinstance(layer, FusedLayer)]


def test_layers_of_the_llama_kind_are_fused_and_all_linears_packed(
    tiny_llama: Path, tiny_qwen3: Path
) -> None:
    for path in (tiny_llama, tiny_qwen3):
        model = load(path)
        fuse(model)
        assert fused_layers(model) == [0, 1]
        assert isinstance(model.lm_head, PackedLinear)
        assert not any(isinstance(module, nn.Linear) for module in model.modules())


def test_a_layer_that_computes_something_else_stays_and_is_packed(tiny_qwen3: Path) -> None:
    model = load(tiny_qwen3)
    odd = model.model.layers[1]
    odd.mlp.act_fn = nn.GELU()
    fuse(model)
    assert fused_layers(model) == [0]
    assert model.model.layers[1] is odd
    assert isinstance(odd.mlp.gate_proj, PackedLinear)
