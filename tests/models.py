"""Tiny random models made on the spot: real Hugging Face directories that load in milliseconds.

Their weights are random, yet wide enough that greedy outputs vary with the prompt. The tokenizer is
a real byte-level BPE trained on the licence of this repository, with ChatML special tokens.
"""

from pathlib import Path
from typing import Literal

Architecture = Literal["llama", "qwen3"]

VOCAB_SIZE = 512
MAX_CONTEXT = 2048
BOS, EOS, UNKNOWN = "<|im_start|>", "<|im_end|>", "<|endoftext|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

_CORPUS = Path(__file__).parent.parent / "LICENSE"


def make_tiny(
    directory: Path,
    arch: Architecture,
    seed: int = 0,
    max_context: int = MAX_CONTEXT,
    *,
    layers: int = 2,
    heads: int = 4,
) -> Path:
    """Write a model of `heads` over half as many KV heads of 16, 512 tokens; returns `directory`.

    Equal arguments write equal weights; another `seed` is another model, so another fingerprint.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    shape = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 16 * heads,
        "intermediate_size": 32 * heads,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads // 2,
        "head_dim": 16,
        "max_position_embeddings": max_context,
        "initializer_range": 0.4,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = (
            LlamaForCausalLM(LlamaConfig(**shape))
            if arch == "llama"
            else Qwen3ForCausalLM(Qwen3Config(**shape))
        )
    model.save_pretrained(directory)
    _save_tokenizer(directory)
    return directory


def _save_tokenizer(directory: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[UNKNOWN, BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([_CORPUS.read_text()], trainer)
    assert tokenizer.get_vocab_size() == VOCAB_SIZE
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS, pad_token=UNKNOWN
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(directory)
