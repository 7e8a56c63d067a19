"""Memoised tokenization equals the library's own, whatever the tokenizer and the text."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from radixgate.prefix import unpack_tokens
from tokenizers import (
    AddedToken,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from gateway.text.tokenizer import TextTokenizer

SPECIALS = ["<s>", "<s><s>", "</s>", "<|im_start|>", "<|im_end|>"]
CORPUS = ["the quick brown fox", "jumps over the lazy dog", "s> < im start 12 345 é 漢字"] * 3


def train(configure: Callable[[Tokenizer], None], **token: bool) -> Tokenizer:
    """A BPE with special tokens, set up by `configure`."""
    tokenizer = Tokenizer(models.BPE())
    configure(tokenizer)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[AddedToken(name, normalized=False, **token) for name in SPECIALS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def byte_level(tokenizer: Tokenizer) -> None:
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)


def byte_level_prefix_space(tokenizer: Tokenizer) -> None:
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)


def split_sequence(tokenizer: Tokenizer) -> None:
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )


def metaspace_always(tokenizer: Tokenizer) -> None:
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")


def metaspace_first(tokenizer: Tokenizer) -> None:
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")


def sentencepiece_like(tokenizer: Tokenizer) -> None:
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )


def framed(tokenizer: Tokenizer) -> None:
    byte_level(tokenizer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )


TOKENIZERS = {
    "byte-level": train(byte_level),
    "byte-level, prefix space": train(byte_level_prefix_space),
    "sequence": train(split_sequence),
    "metaspace always": train(metaspace_always),
    "metaspace first": train(metaspace_first),
    "sentencepiece-like": train(sentencepiece_like),
    "framed": train(framed),
    "strips": train(byte_level, rstrip=True, lstrip=True),
    "single word": train(byte_level, single_word=True),
}
PAIRS = {
    name: (plain, TextTokenizer(plain.to_str().encode(), memo_capacity=500))
    for name, plain in TOKENIZERS.items()
}

PIECES = st.one_of(st.sampled_from([*SPECIALS, " ", "\n", "the fox", " 345"]), st.text(max_size=6))
TEXTS = st.lists(PIECES, max_size=12).map("".join)


@given(st.sampled_from(sorted(PAIRS)), TEXTS, st.booleans())
def test_equals_the_library(name: str, text: str, add_special_tokens: bool) -> None:
    plain, ours = PAIRS[name]
    expected = plain.encode(text, add_special_tokens=add_special_tokens).ids
    got = ours.encode(text, add_special_tokens=add_special_tokens)
    assert unpack_tokens(got) == expected


@pytest.mark.parametrize(
    ("name", "cuts"),
    [("byte-level", True), ("framed", True), ("metaspace first", False), ("strips", False)],
)
def test_only_segments_not_seen_before_are_tokenized(
    name: str, cuts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = TextTokenizer(TOKENIZERS[name].to_str().encode())
    seen: list[str] = []
    whole = tokenizer._encode_whole

    def spy(texts: list[str], add_special_tokens: bool) -> list[bytes]:
        seen.extend(texts)
        return whole(texts, add_special_tokens)

    monkeypatch.setattr(tokenizer, "_encode_whole", spy)
    history = "<|im_start|>the fox<|im_end|>"
    tokenizer.encode(history, add_special_tokens=True)
    seen.clear()
    longer = history + "<|im_start|>jumps"
    tokenizer.encode(longer, add_special_tokens=True)
    assert seen == (["jumps"] if cuts else [longer])


def test_dropout_is_never_memoised() -> None:
    document = json.loads(TOKENIZERS["byte-level"].to_str())
    document["model"]["dropout"] = 0.5
    tokenizer = TextTokenizer(json.dumps(document).encode())
    outputs = {tokenizer.encode("the quick brown fox", add_special_tokens=False) for _ in range(50)}
    assert len(outputs) > 1


@pytest.mark.parametrize("broken", [b"", b"{}", b"not json", b"\xff"])
def test_a_broken_tokenizer_is_named(broken: bytes) -> None:
    with pytest.raises(ValueError, match="the tokenizer does not load"):
        TextTokenizer(broken)
