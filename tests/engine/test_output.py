"""Output that another worker began goes on as if one had made it all, wherever it was cut."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from radixgate.prefix import pack_tokens
from tokenizers import Tokenizer

from tests.engine.toys import request
from tests.models import VOCAB_SIZE
from worker.engine.events import FinishReason
from worker.engine.output import OutputText
from worker.engine.request import Request


@pytest.fixture(scope="session")
def tokenizer(tiny_llama: Path) -> Tokenizer:
    return Tokenizer.from_file(str(tiny_llama / "tokenizer.json"))


def resumed(asked: Request, output: list[int]) -> Request:
    return request(
        [*memoryview(asked.prompt).cast("I")],
        asked.max_tokens,
        stop=asked.stop,
        stop_token_ids=asked.stop_token_ids,
        resumed=output,
    )


def play(text: OutputText, tokens: list[int]) -> list[str]:
    """The pieces of all tokens up to the one that ends it."""
    pieces = []
    for token in tokens:
        pieces.append(text.take(token))
        if text.reason is not None:
            break
    return pieces


# Few tokens, most of them bytes of characters that take several, so that much repeats.
TOKENS = st.integers(0, VOCAB_SIZE - 1) | st.sampled_from([100, 101, 102, 160, 161, 200])


@given(
    prompt=st.lists(TOKENS, min_size=1, max_size=8),
    tokens=st.lists(TOKENS, min_size=1, max_size=25),
    stops=st.lists(st.integers(0, 24), max_size=3),
    stop_tokens=st.sets(TOKENS, max_size=1),
    limited=st.booleans(),
)
def test_any_cut_is_as_no_cut(
    tokenizer: Tokenizer,
    prompt: list[int],
    tokens: list[int],
    stops: list[int],
    stop_tokens: set[int],
    limited: bool,
) -> None:
    # Stop strings that do come: three characters from somewhere in the text.
    whole = str(tokenizer.decode(tokens, skip_special_tokens=True))
    stop = tuple({whole[at : at + 3] for at in stops if whole[at : at + 3]})
    most = len(tokens) if limited else len(tokens) + 1
    asked = request(prompt, most, stop=stop, stop_token_ids=stop_tokens)
    undisturbed = OutputText(tokenizer, asked)
    pieces = play(undisturbed, tokens)
    end = (undisturbed.tokens, undisturbed.reason, undisturbed.stop)
    for cut in range(1, len(pieces) + 1):
        text = OutputText(tokenizer, resumed(asked, tokens[:cut]))
        text.replay()
        if cut == len(pieces):
            assert (text.tokens, text.reason, text.stop) == end
        else:
            assert text.reason is None
            assert play(text, tokens[cut:]) == pieces[cut:]
            assert (text.tokens, text.reason, text.stop) == end


def test_every_kind_of_end_is_found_again(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("one two 3", add_special_tokens=False).ids

    def replayed(**asked: object) -> OutputText:
        text = OutputText(tokenizer, request([1], resumed=ids, **asked))  # type: ignore[arg-type]
        text.replay()
        return text

    assert replayed(max_tokens=99).reason is None
    assert replayed(max_tokens=len(ids)).reason is FinishReason.LENGTH
    by_token = replayed(max_tokens=99, stop_token_ids=[ids[-1]])
    assert (by_token.reason, by_token.stop) == (FinishReason.STOP, None)
    by_string = replayed(max_tokens=99, stop=("3",))
    assert (by_string.reason, by_string.stop) == (FinishReason.STOP, "3")


def test_output_behind_its_own_end_is_refused(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("one two 3", add_special_tokens=False).ids
    for stop, tokens, why in [
        (("two",), [], "stop string 'two'"),
        ((), [ids[1]], "a stop token"),
    ]:
        asked = request([1], 99, stop=stop, stop_token_ids=tokens, resumed=ids)
        with pytest.raises(ValueError, match=f"resumed_tokens: {len(ids)}, .*{why}"):
            OutputText(tokenizer, asked).replay()


def test_an_open_character_is_completed_by_whoever_goes_on(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a🙂", add_special_tokens=False).ids
    text = OutputText(tokenizer, request([1], 99, resumed=ids[:3]))
    text.replay()
    assert pack_tokens(ids[:3]) == request([1], 99, resumed=ids[:3]).resumed
    assert play(text, ids[3:]) == ["", "🙂"]
