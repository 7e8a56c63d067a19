"""Pieces join to the whole decode, cut at the first stop string, however tokens fall."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from tests.models import VOCAB_SIZE
from worker.engine.text import Detokenizer, StopStrings, TextStream


@pytest.fixture(scope="session")
def tokenizer(tiny_llama: Path) -> Tokenizer:
    return Tokenizer.from_file(str(tiny_llama / "tokenizer.json"))


def decode(tokenizer: Tokenizer, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=True))


id_lists = st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=60)


@given(prompt=id_lists, ids=id_lists)
def test_any_ids_decode_to_the_whole(
    tokenizer: Tokenizer, prompt: list[int], ids: list[int]
) -> None:
    stream = Detokenizer(tokenizer, prompt)
    joined = "".join(stream.push(token) for token in ids) + stream.flush()
    before = decode(tokenizer, prompt[-6:]).rstrip("\N{REPLACEMENT CHARACTER}")
    assert joined == decode(tokenizer, prompt[-6:] + ids)[len(before) :]


@given(text=st.text(max_size=40))
@example("🙂" * 20)
@example("\N{REPLACEMENT CHARACTER}" * 12)
def test_text_comes_out_as_it_went_in(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    if decode(tokenizer, ids) != text:
        return  # the text spells a special token
    stream = Detokenizer(tokenizer, [])
    pieces = [stream.push(token) for token in ids]
    assert "".join(pieces) + stream.flush() == text


def test_an_open_character_of_the_prompt_is_completed(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("🙂", add_special_tokens=False).ids
    assert len(ids) == 4
    stream = Detokenizer(tokenizer, ids[:2])
    assert [stream.push(token) for token in ids[2:]] == ["", "🙂"]


def test_a_run_of_invalid_bytes_is_not_held_for_ever(tokenizer: Tokenizer) -> None:
    half = tokenizer.encode("🙂", add_special_tokens=False).ids[0]
    stream = Detokenizer(tokenizer, [])
    pieces = [stream.push(half) for _ in range(100)]
    assert len("".join(pieces)) >= 90


def test_sentencepiece_keeps_the_space_of_the_first_word() -> None:
    vocab = {"<unk>": 0, "▁The": 1, "▁capital": 2, "<0xE2>": 3, "<0x82>": 4, "<0xAC>": 5}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>", byte_fallback=True))
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*parts, decoders.Strip(content=" ", left=1)])
    stream = Detokenizer(tokenizer, [1])
    assert [stream.push(token) for token in (2, 3, 4, 5, 3, 4, 5, 2)] == [
        " capital", "", "", "€", "", "", "€", " capital",
    ]  # fmt: skip
    assert Detokenizer(tokenizer, []).push(2) == "capital"


def naive_cut(text: str, stops: list[str]) -> tuple[str, str | None]:
    for end in range(len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return text[: end - len(stop)], stop
    return text, None


@given(
    pieces=st.lists(st.text("ab", max_size=5), max_size=12),
    stops=st.lists(st.text("ab", min_size=1, max_size=5), max_size=4),
)
def test_stop_strings_cut_alike_however_the_text_is_split(
    pieces: list[str], stops: list[str]
) -> None:
    stream = StopStrings(stops)
    text, stop = "", None
    for piece in pieces:
        more, stop = stream.push(piece)
        text += more
        if stop:
            break
    else:
        text += stream.flush()
    assert (text, stop) == naive_cut("".join(pieces), stops)


def test_only_what_may_become_a_stop_string_is_held_back() -> None:
    stream = StopStrings(["\n\nUser:"])
    assert stream.push("Hello\n").text == "Hello"
    assert stream.push("there\n\nUs").text == "\nthere"
    assert stream.push("ed car").text == "\n\nUsed car"


def test_stream_flushes_what_is_open_and_held(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("ab🙂", add_special_tokens=False).ids[:-1]
    stream = TextStream(tokenizer, [], stops=["bc"])
    text = "".join(stream.push(token).text for token in ids)
    assert text == "a"
    assert stream.flush() == ("b\N{REPLACEMENT CHARACTER}", None)


def test_a_stop_string_may_complete_at_the_flush(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("ab🙂", add_special_tokens=False).ids[:-1]
    stream = TextStream(tokenizer, [], stops=["b\N{REPLACEMENT CHARACTER}"])
    assert "".join(stream.push(token).text for token in ids) == "a"
    assert stream.flush() == ("", "b\N{REPLACEMENT CHARACTER}")
