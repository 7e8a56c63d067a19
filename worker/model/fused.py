"""Makes a loaded model faster on a CPU: packed weights, fewer and larger operations.

Decoder layers of the Llama kind (Llama, Mistral, Qwen2, Qwen3, SmolLM and others) become a
`FusedLayer`. Whether a layer is of that kind is not read from its name: the fused one must give the
same on random rows, else the layer stays as it is and only its linear layers are packed.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm

from worker.attention.base import PagedBatch
from worker.kv.format import LayerKV
from worker.model.packed import pack, pack_together
from worker.model.paged import PagedStep

# Largest difference on random rows, as a part of the largest value.
_TOLERANCE = 1e-4
_PROBE_ROWS = 5


def fuse(model: nn.Module) -> None:
    """Exchange layers of `model`, float32 on a CPU, in place; each frees the weights it replaces.

    A weight that is used elsewhere too, such as the embedding behind a tied output layer, stays
    there and is packed as a copy. Where torch has no oneDNN, nothing is exchanged.
    """
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return
    for name, layer in list(model.named_modules()):
        if fused := _fused(layer):
            model.set_submodule(name, fused)
    for name, layer in list(model.named_modules()):
        if type(layer) is nn.Linear:
            model.set_submodule(name, pack(layer))


class FusedLayer(nn.Module):
    """A decoder layer: RMS norm, rotary attention, RMS norm, gated SiLU; each half is residual.

    Args: `layer`, one of transformers that computes this with the usual names for its parts.

    Raises:
        AttributeError: a part is missing.
    """

    def __init__(self, layer: Any) -> None:
        super().__init__()
        attention, mlp = layer.self_attn, layer.mlp
        self._index: int = attention.layer_idx
        self._head_dim: int = attention.head_dim
        self._heads = attention.q_proj.out_features // self._head_dim
        self._kv_heads = attention.k_proj.out_features // self._head_dim
        self._scale: float = attention.scaling
        self._before_attention = _Norm.of(layer.input_layernorm)
        self._before_mlp = _Norm.of(layer.post_attention_layernorm)
        normed = hasattr(attention, "q_norm")
        self._of_queries = _Norm.of(attention.q_norm) if normed else None
        self._of_keys = _Norm.of(attention.k_norm) if normed else None
        self._qkv = pack_together(attention.q_proj, attention.k_proj, attention.v_proj)
        self._output = pack(attention.o_proj)
        self._gate, self._up, self._down = (
            pack(each) for each in (mlp.gate_proj, mlp.up_proj, mlp.down_proj)
        )

    def forward(
        self,
        hidden: Tensor,
        *,
        position_embeddings: tuple[Tensor, Tensor],
        paged: PagedStep,
        **_: object,
    ) -> Tensor:
        """As transformers calls it.

        Args:
            hidden: [1, T, hidden size].
            position_embeddings: cosines and sines, [1, T, head_dim] each.
            paged: the step.

        Returns:
            [1, T, hidden size].
        """
        [rows] = hidden
        qkv: Tensor = self._qkv(self._before_attention(rows))
        qkv = qkv.view(len(rows), -1, self._head_dim)
        queries, keys = slice(self._heads), slice(self._heads, self._heads + self._kv_heads)
        if self._of_queries and self._of_keys:
            qkv[:, queries] = self._of_queries(qkv[:, queries])
            qkv[:, keys] = self._of_keys(qkv[:, keys])
        rotated, values = _rotate(qkv[:, : keys.stop], *position_embeddings), qkv[:, keys.stop :]
        attended = paged.attend(
            self._index, rotated[:, queries], rotated[:, keys], values, self._scale
        )
        rows = self._output.plus(attended.flatten(1), rows)
        normed = self._before_mlp(rows)
        gated = self._up.times(normed, self._gate.silu(normed))
        return self._down.plus(gated, rows)[None]


class _Norm(NamedTuple):
    """RMS norm over the last dimension."""

    weight: Tensor
    epsilon: float

    @classmethod
    def of(cls, norm: Any) -> "_Norm":
        return cls(norm.weight.detach(), norm.variance_epsilon)

    def __call__(self, rows: Tensor) -> Tensor:
        return rms_norm(rows, self.weight.shape, self.weight, self.epsilon)


def _rotate(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotary embedding of [T, heads, head_dim]; element i turns with element i + head_dim / 2."""
    half = heads.shape[-1] // 2
    lower, upper = sines[0, :, None].chunk(2, dim=-1)
    signed = torch.cat([-lower, upper], dim=-1)
    return torch.addcmul(heads * cosines[0, :, None], heads.roll(half, dims=-1), signed)


def _fused(layer: nn.Module) -> FusedLayer | None:
    """`layer` fused, or None when it is not a layer that computes the same."""
    if not hasattr(layer, "self_attn"):
        return None
    try:
        fused = FusedLayer(layer)
        same = _agree(layer, fused)
    except (AttributeError, RuntimeError, TypeError, ValueError):
        # NOTE: whatever a layer of another kind lacks or does not take.
        return None
    return fused if same else None


class _Mixed:
    """An `AttentionBackend` that mixes each row with itself, so that no part can go unnoticed."""

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        batch: PagedBatch,  # noqa: ARG002
        kv: LayerKV,  # noqa: ARG002
        scale: float,
    ) -> Tensor:
        grouped = queries.reshape(*keys.shape[:2], -1, keys.shape[2])
        return (grouped * keys[:, :, None] * scale + values[:, :, None]).flatten(1, 2)

    def warm_up(self, layers: list[LayerKV]) -> None:
        """Nothing to do."""


@torch.inference_mode()
def _agree(layer: Any, fused: FusedLayer) -> bool:
    """Whether both give the same for random rows, angles and positions."""
    attention = layer.self_attn
    numbers = torch.Generator().manual_seed(attention.layer_idx)
    hidden = torch.randn(1, _PROBE_ROWS, attention.q_proj.in_features, generator=numbers)
    angles = torch.randn(1, _PROBE_ROWS, attention.head_dim // 2, generator=numbers).repeat(1, 1, 2)
    nowhere: Any = None
    arguments = {
        "attention_mask": None,
        "position_ids": torch.arange(_PROBE_ROWS)[None],
        "position_embeddings": (angles.cos(), angles.sin()),
        "use_cache": False,
        "paged": PagedStep(nowhere, [nowhere] * (attention.layer_idx + 1), _Mixed()),
    }
    expected: Tensor = layer(hidden, **arguments)
    difference = (fused(hidden, **arguments) - expected).abs().max()
    return bool(difference <= _TOLERANCE * expected.abs().max())
