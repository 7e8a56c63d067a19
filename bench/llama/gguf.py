"""Writes the weights of a Llama model as GGUF for llama.cpp, without a tokenizer."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from gguf import MODEL_ARCH, GGMLQuantizationType, GGUFWriter, get_tensor_name_map
from gguf.quants import quantize
from safetensors.numpy import load_file


def write_gguf(model: Path, gguf: Path, matrices: GGMLQuantizationType) -> None:
    """Convert a Hugging Face directory in float32.

    Args:
        model: the directory.
        gguf: the file to write.
        matrices: type of all matrices; vectors stay as they are.

    Raises:
        ValueError: it is no plain Llama model.
    """
    config = json.loads((model / "config.json").read_text())
    kind, rope = config["model_type"], config["rope_parameters"]
    if kind != "llama" or rope["rope_type"] != "default":
        raise ValueError(
            f"{model} is a {kind!r} with {rope['rope_type']!r} rotary embeddings; "
            "only 'llama' with 'default' ones is converted"
        )
    writer = GGUFWriter(gguf, "llama")
    _describe(writer, config)
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for name, tensor in load_file(model / "model.safetensors").items():
        if name.endswith(".q_proj.weight"):
            weights = _interleaved(tensor, config["num_attention_heads"])
        elif name.endswith(".k_proj.weight"):
            weights = _interleaved(tensor, config["num_key_value_heads"])
        else:
            weights = tensor
        if not (target := names.get_name(name, (".weight",))):
            raise ValueError(f"GGUF has no name for the tensor {name} of {model}")
        writer.add_tensor(
            target,
            quantize(weights, matrices) if weights.ndim == 2 else weights,
            raw_dtype=matrices if weights.ndim == 2 else None,
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])


def _interleaved(weights: "np.ndarray[Any, Any]", heads: int) -> "np.ndarray[Any, Any]":
    """Rows `[heads * dim, inputs]` so that those which rotate together are neighbours."""
    halves = weights.reshape(heads, 2, -1, weights.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(weights.shape)
