"""Loads a model directory, and refuses what it could not serve right.

Any decoder of transformers whose attention is plain, causal and over the whole context is right.
That is read from its config, then proven on a short prompt, see `worker.model.proof`.
"""

from pathlib import Path
from typing import Any

import torch
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AttentionInterface,
    AutoConfig,
    AutoModelForCausalLM,
)
from transformers.utils import logging as transformers_logging

from worker.attention.torch_backend import TorchAttention
from worker.model.directory import ModelDirectory, ModelError, open_directory
from worker.model.fingerprint import fingerprint
from worker.model.paged import ATTENTION_NAME, ModelSpec, PagedModel, paged_attention
from worker.model.proof import own_logits, paged_logits

# Their frequencies depend on the longest sequence of a batch, so cached keys would be wrong.
_BATCH_DEPENDENT_ROPE = ("dynamic", "longrope")

# Largest error of a logit, as a part of the largest logit.
_PROOF_TOLERANCE = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}

AttentionInterface.register(ATTENTION_NAME, paged_attention)


def load_model(
    directory: Path, device: torch.device, dtype: torch.dtype = torch.float32
) -> PagedModel:
    """Load, check and prove a model; nothing is fetched from anywhere.

    Args:
        directory: Hugging Face config, tokenizer and safetensors.
        device: to compute on.
        dtype: to compute in: float32, or float16 or bfloat16, which a CPU computes more slowly.

    Raises:
        ModelError: the directory is missing or incomplete, or the architecture is not supported.
    """
    files = open_directory(directory)
    config = _config(files)
    _require_plain_attention(config)
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
    model = model.to(device).eval()
    spec = _spec(files, model)
    expected = own_logits(model)
    model.set_attn_implementation(ATTENTION_NAME)
    paged = PagedModel(model, spec, TorchAttention())
    try:
        found = paged_logits(paged)
    except (IndexError, RuntimeError, TypeError) as error:
        raise _unsupported(config, f"it does not run over paged KV: {error}") from error
    off = (found - expected).abs().max() / expected.abs().max()
    if not off <= _PROOF_TOLERANCE[dtype]:  # NOTE: also when it is NaN
        raise _unsupported(config, f"over paged KV its logits are off by {off:.2%}")
    return paged


def _config(files: ModelDirectory) -> Any:
    try:
        config = AutoConfig.from_pretrained(files.path, local_files_only=True)
    except (KeyError, OSError, ValueError) as error:
        name = files.config.get("model_type")
        raise ModelError(
            f"model {files.path} has the architecture {name!r}, unknown to transformers: {error}"
        ) from error
    kind: Any = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    if kind is None:
        raise _unsupported(config, "it is not a causal language model")
    if not kind._supports_attention_backend:
        raise _unsupported(config, "transformers cannot exchange its attention")
    return config


def _require_plain_attention(config: Any) -> None:
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if kinds:
        raise _unsupported(config, f"it has layers of the kind {', '.join(sorted(kinds))}")
    window = getattr(config, "sliding_window", None)
    if window is not None and window < config.max_position_embeddings:
        raise _unsupported(config, f"its attention sees only the last {window} tokens")
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rope in _BATCH_DEPENDENT_ROPE:
        raise _unsupported(config, f"its rotary embedding of type {rope} changes with the batch")


def _spec(files: ModelDirectory, model: Any) -> ModelSpec:
    config = model.config
    ends = model.generation_config.eos_token_id
    if ends is None:
        ends = config.eos_token_id
    heads = config.num_attention_heads
    return ModelSpec(
        name=files.path.resolve().name,
        fingerprint=fingerprint(files),
        layers=config.num_hidden_layers,
        heads=heads,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        vocab_size=config.vocab_size,
        max_context=config.max_position_embeddings,
        eos_token_ids=frozenset([ends] if isinstance(ends, int) else ends or ()),
    )


def _unsupported(config: Any, why: str) -> ModelError:
    return ModelError(f"architecture {config.model_type!r} is not supported: {why}")
