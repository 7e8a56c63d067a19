"""Loads a model directory, and refuses what it could not serve right.

What is right is read from its config, see `worker.model.architecture`, then proven on a short
prompt, see `worker.model.proof`.
"""

import logging
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from worker.attention.default import default_attention
from worker.model.architecture import attention_tokens, kv_shape, read_config, unsupported
from worker.model.compiled import CompiledModel, OtherKindError
from worker.model.device import choose_dtype
from worker.model.directory import CONFIG, ModelDirectory, ModelError, open_directory
from worker.model.fingerprint import fingerprint
from worker.model.packed import pack
from worker.model.paged import (
    ATTENTION_NAME,
    ModelSpec,
    PagedModel,
    TransformersModel,
    paged_attention,
)
from worker.model.proof import own_logits, paged_logits
from worker.model.weights import WeightFormat

_log = logging.getLogger(__name__)

# Largest error of a logit, as a part of the largest logit.
_PROOF_TOLERANCE = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}
_ROUNDED_TOLERANCE = 0.1

AttentionInterface.register(ATTENTION_NAME, paged_attention)


def load_model(
    directory: Path,
    device: torch.device,
    dtype: torch.dtype | None = None,
    weights: WeightFormat = WeightFormat.FLOAT32,
) -> PagedModel:
    """Load, check and prove a model; nothing is fetched from anywhere.

    Args:
        directory: Hugging Face config, tokenizer and safetensors.
        device: to compute on.
        dtype: to compute in: float32, float16 or bfloat16; None: see `choose_dtype`.
        weights: how to keep those of linear layers; INT8 is for models that are compiled.

    Raises:
        ModelError: the directory is missing or incomplete, the architecture is not supported, or
            `weights` are not for this model or device.
    """
    files = open_directory(directory)
    config = read_config(files.path / CONFIG)
    dtype = dtype or choose_dtype(device, config.dtype)
    rounds = weights == WeightFormat.INT8
    compilable = device.type == "cpu" and dtype == torch.float32
    if rounds and not compilable:
        raise ModelError(
            f"int8 weights are for a CPU that computes in float32, not for {device} in {dtype}; "
            "take --weights float32"
        )
    model = _load(directory, config, device, dtype)
    spec, expected = _spec(files, model, weights), own_logits(model)
    if compilable:
        try:
            compiled = CompiledModel(model, spec)
            _prove(compiled, expected, config)
        except (OtherKindError, ModelError) as error:
            if rounds:
                raise ModelError(
                    f"int8 weights are for models that are compiled, which {spec.name} is not "
                    f"({error}); take --weights float32"
                ) from error
            _log.info("the layers of %s are not compiled: %s", spec.name, error)
            model = _load(directory, config, device, dtype)
            pack(model)
        else:
            if rounds:
                _round_weights(compiled, expected)
            size = compiled.weight_bytes
            _log.info("%s is compiled; weights in %s, %d bytes", spec.name, weights, size)
            return compiled
    model.set_attn_implementation(ATTENTION_NAME)
    paged = TransformersModel(model, spec, default_attention(device, dtype))
    _prove(paged, expected, config)
    return paged


def _load(directory: Path, config: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """The model as transformers has it."""
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            directory,
            config=config,
            dtype=dtype,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
        )
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        raise ModelError(f"model {directory} does not load: {error}") from error
    model, info = loaded
    if missing := sorted(info["missing_keys"]):
        raise ModelError(f"model {directory} lacks {len(missing)} weights, such as {missing[0]}")
    return model.to(device).eval()


def _prove(model: PagedModel, expected: Tensor, config: Any) -> None:
    """Raises ModelError when `model` does not give the `expected` logits."""
    try:
        found = paged_logits(model)
    except (IndexError, RuntimeError, TypeError) as error:
        raise unsupported(config, f"it does not run over paged KV: {error}") from error
    off = _error(found, expected)
    if not off <= _PROOF_TOLERANCE[model.dtype]:  # NOTE: also when it is NaN
        raise unsupported(config, f"over paged KV its logits are off by {off:.2%}")


def _round_weights(model: CompiledModel, expected: Tensor) -> None:
    """Round the weights of a model that is proven right without; it still must be near that."""
    model.round_weights()
    off = _error(paged_logits(model), expected)
    if not off <= _ROUNDED_TOLERANCE:
        raise ModelError(
            f"with int8 weights the logits of {model.spec.name} are off by {off:.2%}, more than "
            f"{_ROUNDED_TOLERANCE:.0%}; take --weights float32"
        )
    _log.info("int8 weights move the logits of %s by up to %.2g %%", model.spec.name, 100 * off)


def _error(found: Tensor, expected: Tensor) -> float:
    """The largest error of a logit, as a part of the largest logit."""
    return float((found - expected).abs().max() / expected.abs().max())


def _spec(files: ModelDirectory, model: Any, weights: WeightFormat) -> ModelSpec:
    config = model.config
    ends = model.generation_config.eos_token_id
    if ends is None:
        ends = config.eos_token_id
    shape = kv_shape(config, block_size=1)
    return ModelSpec(
        name=files.path.resolve().name,
        fingerprint=fingerprint(files, weights),
        layers=shape.layers,
        heads=config.num_attention_heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        vocab_size=config.vocab_size,
        max_context=config.max_position_embeddings,
        attention_tokens=attention_tokens(config),
        eos_token_ids=frozenset([ends] if isinstance(ends, int) else ends or ()),
    )
