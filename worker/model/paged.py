"""A model over paged KV, and that of transformers: the code is theirs, the attention is ours."""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from worker.attention.base import AttentionBackend, PagedBatch
from worker.kv.format import KVShape, LayerKV
from worker.model.directory import ModelError

# The name under which transformers knows `paged_attention`.
ATTENTION_NAME = "radixgate"

# What an attention may ask for beyond softmax(scale * Q K) V, and we do not do.
_BEYOND_PLAIN = ("softcap", "s_aux", "position_bias")


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What the engine and the model card need to know of a model.

    Attributes:
        name: of its directory.
        fingerprint: see `worker.model.fingerprint`.
        vocab_size: token ids are below it.
        max_context: tokens of prompt and output together.
        attention_tokens: the context at which a token takes twice as long as one without.
        eos_token_ids: any of them ends an answer.
    """

    name: str
    fingerprint: str
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    max_context: int
    attention_tokens: int
    eos_token_ids: frozenset[int]

    def kv_shape(self, block_size: int) -> KVShape:
        """What a KV format must hold for this model."""
        return KVShape(self.layers, self.kv_heads, self.head_dim, block_size)


class PagedStep(NamedTuple):
    """What travels through the model's own code to its attention, as the keyword `paged`."""

    batch: PagedBatch
    kv: list[LayerKV]
    attention: AttentionBackend

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float
    ) -> Tensor:
        """The attention of `layer`; see `AttentionBackend.attend`."""
        return self.attention.attend(
            queries, keys, values, batch=self.batch, kv=self.kv[layer], scale=scale
        )


class PagedModel(Protocol):
    """A model over paged KV.

    Attributes:
        spec: of it.
        device: where it computes.
        dtype: that it computes in.
    """

    spec: ModelSpec
    device: torch.device
    dtype: torch.dtype

    def warm_up(self, kv: list[LayerKV]) -> None:
        """Do now what the first `forward` over `kv` would take long for."""

    def forward(self, batch: PagedBatch, kv: list[LayerKV]) -> Tensor:
        """One step: writes the KV of the batch's new tokens.

        Args:
            batch: on the model's device.
            kv: one `LayerKV` a layer.

        Returns:
            Logits [R, vocab_size] float32, a row for each of `batch.sample_rows`.
        """
        ...


class TransformersModel:
    """A `PagedModel` whose code is that of transformers.

    Args:
        module: whose attention is `paged_attention`.
        spec: of it.
        attention: to use.
    """

    def __init__(self, module: nn.Module, spec: ModelSpec, attention: AttentionBackend) -> None:
        self.spec = spec
        self.module = module
        self._attention = attention
        parameter = next(module.parameters())
        self.device, self.dtype = parameter.device, parameter.dtype
        on_gpu = self.device.type == "cuda"
        # NOTE: Triton launches on the current device, and every thread has a current device.
        self._current = torch.cuda.device(self.device) if on_gpu else nullcontext()

    def warm_up(self, kv: list[LayerKV]) -> None:
        """See `PagedModel.warm_up`."""
        self._attention.warm_up(kv)

    @torch.inference_mode()
    def forward(self, batch: PagedBatch, kv: list[LayerKV]) -> Tensor:
        """See `PagedModel.forward`."""
        with self._current:
            output = self.module(
                input_ids=batch.token_ids[None],
                position_ids=batch.positions[None],
                use_cache=False,
                logits_to_keep=batch.sample_rows,
                paged=PagedStep(batch, kv, self._attention),
            )
        logits: Tensor = output.logits[0]
        return logits.float()


def paged_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # noqa: ARG001
    *,
    paged: PagedStep,
    scaling: float | None = None,
    **extra: Any,
) -> tuple[Tensor, None]:
    """The attention function that transformers calls in each layer.

    Args:
        module: the attention layer; its `layer_idx` picks the KV.
        query: [1, heads, T, head_dim].
        key: [1, kv_heads, T, head_dim].
        value: [1, kv_heads, T, head_dim].
        attention_mask: None; the batch says what is seen.
        paged: the step.
        scaling: of the logits; unset is head_dim ** -0.5.
        extra: what else the model passes.

    Returns:
        [1, T, heads, head_dim], and no weights.

    Raises:
        ModelError: the model asks for an attention that is not plain.
    """
    if beyond := [name for name in _BEYOND_PLAIN if extra.get(name) is not None]:
        raise ModelError(f"the model's attention needs {', '.join(beyond)}, not supported")
    if key.shape != value.shape:
        raise ModelError("the model's keys and values differ in shape, not supported")
    layer: int = module.layer_idx  # type: ignore[assignment]
    output = paged.attend(
        layer,
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        query.shape[-1] ** -0.5 if scaling is None else scaling,
    )
    return output[None], None
