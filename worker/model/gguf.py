"""Converts a GGUF file to a Hugging Face directory: `python -m worker.model.gguf FILE DIRECTORY`.

Loading a GGUF takes most of a minute each time, since every tensor is dequantized and the tokenizer
is rebuilt; the directory written here loads in a second. Weights become fp32.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PRE_TOKENIZER_KEY = "tokenizer.ggml.pre"


def convert(gguf: Path, directory: Path) -> None:
    """Write config, generation config, tokenizer, chat template and safetensors to `directory`.

    Raises:
        ValueError: the file holds no tensor data or a model that transformers does not know.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    _restore_pre_tokenizer(tokenizer.backend_tokenizer, _metadata(gguf, PRE_TOKENIZER_KEY))
    model: Any = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32
    )
    # NOTE: transformers refuses to save a model that it believes to be quantized.
    del model.config.quantization_config
    model.is_quantized = False
    model.hf_quantizer = None
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def _restore_pre_tokenizer(tokenizer: "Tokenizer", name: str) -> None:
    """Undo what transformers loses: a GGUF only names its pre-tokenizer."""
    from tokenizers import pre_tokenizers

    if name == "smollm":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), tokenizer.pre_tokenizer]
        )


def _metadata(gguf: Path, key: str) -> str:
    from gguf import GGUFReader

    field = GGUFReader(gguf).get_field(key)
    return str(field.contents()) if field else ""


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
