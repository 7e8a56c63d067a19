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
from worker.model.architecture import kv_shape, read_config, unsupported
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

_log = logging.getLogger(__name__)

# Largest error of a logit, as a part of the largest logit.
_PROOF_TOLERANCE = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}

AttentionInterface.register(ATTENTION_NAME, paged_attention)


def load_model(
    directory: Path, device: torch.device, dtype: torch.dtype | None = None
) -> PagedModel:
    """Load, check and prove a model; nothing is fetched from anywhere.

    Args:
        directory: Hugging Face config, tokenizer and safetensors.
        device: to compute on.
        dtype: to compute in: float32, float16 or bfloat16; None: see `choose_dtype`.

    Raises:
        ModelError: the directory is missing or incomplete, or the architecture is not supported.
    """
    files = open_directory(directory)
    config = read_config(files.path / CONFIG)
    dtype = dtype or choose_dtype(device, config.dtype)
    model = _load(directory, config, device, dtype)
    spec, expected = _spec(files, model), own_logits(model)
    if device.type == "cpu" and dtype == torch.float32:
        try:
            compiled = CompiledModel(model, spec)
            _prove(compiled, expected, config)
        except (OtherKindError, ModelError) as error:
            _log.info("the layers of %s are not compiled: %s", spec.name, error)
            model = _load(directory, config, device, dtype)
            pack(model)
        else:
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
    off = (found - expected).abs().max() / expected.abs().max()
    if not off <= _PROOF_TOLERANCE[model.dtype]:  # NOTE: also when it is NaN
        raise unsupported(config, f"over paged KV its logits are off by {off:.2%}")


def _spec(files: ModelDirectory, model: Any) -> ModelSpec:
    config = model.config
    ends = model.generation_config.eos_token_id
    if ends is None:
        ends = config.eos_token_id
    shape = kv_shape(config, block_size=1)
    return ModelSpec(
        name=files.path.resolve().name,
        fingerprint=fingerprint(files),
        layers=shape.layers,
        heads=config.num_attention_heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        vocab_size=config.vocab_size,
        max_context=config.max_position_embeddings,
        eos_token_ids=frozenset([ends] if isinstance(ends, int) else ends or ()),
    )
