"""What a config.json says of a model before a weight is read: whether it can be served, its sizes.

Any decoder of transformers whose attention is plain, causal and over the whole context can be.
"""

from pathlib import Path
from typing import Any

import torch
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM

from worker.kv.format import KVShape
from worker.model.directory import ModelError, read_json

# Their frequencies depend on the longest sequence of a batch, so cached keys would be wrong.
_BATCH_DEPENDENT_ROPE = ("dynamic", "longrope")


def read_config(file: Path) -> Any:
    """The transformers config in `file`, a config.json, defaults filled in.

    Raises:
        ModelError: it is unreadable, or a model of this architecture could not be served right.
    """
    kind = read_json(file).get("model_type")
    try:
        config = AutoConfig.from_pretrained(file, local_files_only=True, trust_remote_code=False)
    except (KeyError, OSError, ValueError) as error:
        raise ModelError(
            f"model {file.parent} has the architecture {kind!r}, unknown to transformers: {error}"
        ) from error
    model: Any = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    if model is None:
        raise unsupported(config, "it is not a causal language model")
    if not model._supports_attention_backend:
        raise unsupported(config, "transformers cannot exchange its attention")
    _require_plain_attention(config)
    return config


def kv_shape(config: Any, block_size: int) -> KVShape:
    """What a KV format must hold for a model."""
    heads = config.num_attention_heads
    return KVShape(
        layers=config.num_hidden_layers,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        block_size=block_size,
    )


def count_parameters(config: Any) -> int:
    """Elements of all weights of a model, those that share memory once."""
    return sum(parameter.numel() for parameter in _weightless(config).parameters())


def attention_tokens(config: Any) -> int:
    """The context at which a prompt token of a model costs twice what it costs without one.

    A token takes 2 operations for each weight that it meets, and for each token before it 4 for
    each element of the query heads in each layer.
    """
    model = _weightless(config)
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    outer = {id(end.weight) for end in ends if end is not None}
    met = sum(each.numel() for each in model.parameters() if id(each) not in outer)
    shape = kv_shape(config, block_size=1)
    return int(met / (2 * shape.layers * config.num_attention_heads * shape.head_dim))


def unsupported(config: Any, why: str) -> ModelError:
    """The error that says why a model of this architecture is not served."""
    return ModelError(f"architecture {config.model_type!r} is not supported: {why}")


def _weightless(config: Any) -> Any:
    """The model that `config` describes; its weights have shapes alone."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]


def _require_plain_attention(config: Any) -> None:
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if kinds:
        raise unsupported(config, f"it has layers of the kind {', '.join(sorted(kinds))}")
    window = getattr(config, "sliding_window", None)
    if window is not None and window < config.max_position_embeddings:
        raise unsupported(config, f"its attention sees only the last {window} tokens")
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rope in _BATCH_DEPENDENT_ROPE:
        raise unsupported(config, f"its rotary embedding of type {rope} changes with the batch")
    if getattr(config, "kv_lora_rank", None) is not None:
        raise unsupported(config, "its keys and values differ in shape")
