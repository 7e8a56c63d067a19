"""Every bad value is refused by name, and every documented edge is accepted."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from radixgate import limits
from radixgate.prefix import pack_tokens
from radixgate.v1.gateway_pb2 import ChatMessage, ChatRequest
from radixgate.v1.generate_pb2 import GenerateRequest, Sampling, Stopping, TokenIds


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        (GenerateRequest(), "prompt: missing"),
        (GenerateRequest(text=""), "prompt: the text is empty"),
        (GenerateRequest(tokens=TokenIds()), "prompt: the list"),
        (GenerateRequest(packed=b""), "prompt: the packed"),
        (GenerateRequest(packed=b"12345"), "5 packed bytes"),
        (GenerateRequest(text="a", sampling=Sampling(temperature=-1)), "sampling.temperature: -1"),
        (GenerateRequest(text="a", stopping=Stopping(max_tokens=0)), "stopping.max_tokens: 0"),
    ],
)
def test_bad_generate_requests_are_refused(request_: GenerateRequest, names: str) -> None:
    with pytest.raises(ValueError, match=names):
        limits.check_generate(request_)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=-0.001),
        Sampling(temperature=100.1),
        Sampling(temperature=math.nan),
        Sampling(temperature=math.inf),
        Sampling(top_p=0),
        Sampling(top_p=-1),
        Sampling(top_p=1.001),
        Sampling(top_p=math.nan),
    ],
)
def test_absurd_sampling_is_refused(sampling: Sampling) -> None:
    with pytest.raises(ValueError, match=r"sampling\.(temperature|top_p): .* is outside"):
        limits.check_sampling(sampling)


@pytest.mark.parametrize(
    "stopping",
    [Stopping(stop=["a"] * 17), Stopping(stop=["a", ""]), Stopping(stop=["x" * 1025])],
)
def test_absurd_stopping_is_refused(stopping: Stopping) -> None:
    with pytest.raises(ValueError, match=r"stopping\.stop"):
        limits.check_stopping(stopping)


def test_edges_are_accepted() -> None:
    limits.check_sampling(Sampling())
    limits.check_sampling(Sampling(temperature=0, top_p=1, top_k=0, seed=2**64 - 1))
    limits.check_sampling(Sampling(temperature=100, top_p=1e-6, top_k=2**32 - 1))
    limits.check_stopping(Stopping(max_tokens=1, stop=["x" * 1024] * 16))
    limits.check_generate(GenerateRequest(text=" "))
    limits.check_prompt(pack_tokens([0, 99]), vocab_size=100, max_context=3)


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        (ChatRequest(), "messages: empty"),
        (ChatRequest(messages=[ChatMessage(content="hi")]), r"messages\[0\].role"),
        (
            ChatRequest(messages=[ChatMessage(role="user")], sampling=Sampling(top_p=2)),
            "sampling.top_p: 2",
        ),
    ],
)
def test_bad_chat_requests_are_refused(request_: ChatRequest, names: str) -> None:
    with pytest.raises(ValueError, match=names):
        limits.check_chat(request_)


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        ([], "no tokens"),
        ([1, 100, 101], "token 1 is 100, outside the vocabulary of 100"),
        ([1] * 8, "8 tokens leave no room .* context of 8"),
    ],
)
def test_prompts_that_a_model_cannot_take(ids: list[int], names: str) -> None:
    with pytest.raises(ValueError, match=names):
        limits.check_prompt(pack_tokens(ids), vocab_size=100, max_context=8)


VOCABULARIES = st.integers(1, 2**31) | st.sampled_from([1, 255, 256, 49_152, 2**31])


@given(data=st.data(), vocab_size=VOCABULARIES, before=st.sampled_from([0, 1, 1023, 1024, 3000]))
def test_one_token_outside_the_vocabulary_is_found_among_many(
    data: st.DataObject, vocab_size: int, before: int
) -> None:
    edges = [0, vocab_size - 1, vocab_size, 2**31 - 1, 2**31, 2**32 - 1]
    some = data.draw(st.lists(st.sampled_from(edges) | st.integers(0, 2**32 - 1), min_size=1))
    ids = [vocab_size - 1] * before + some
    wrong = [index for index, token in enumerate(ids) if token >= vocab_size]
    packed, limit = pack_tokens(ids), {"vocab_size": vocab_size, "max_context": 2**20}
    if not wrong:
        limits.check_prompt(packed, **limit)
        return
    index = wrong[0]
    with pytest.raises(ValueError, match=f"token {index} is {ids[index]}, outside"):
        limits.check_prompt(packed, **limit)


def test_a_text_that_cannot_fit_is_refused_untokenized() -> None:
    limits.check_text(8 * 64, max_context=8)
    with pytest.raises(ValueError, match=r"513 characters.* context of 8 tokens at most 512"):
        limits.check_text(8 * 64 + 1, max_context=8)


def test_both_id_forms_pack_alike_and_text_is_refused() -> None:
    packed = pack_tokens([1, 2, 3])
    assert limits.packed_prompt(GenerateRequest(packed=packed)) == packed
    assert limits.packed_prompt(GenerateRequest(tokens=TokenIds(ids=[1, 2, 3]))) == packed
    with pytest.raises(ValueError, match="send text to a gateway"):
        limits.packed_prompt(GenerateRequest(text="hi"))
    with pytest.raises(ValueError, match="missing"):
        limits.packed_prompt(GenerateRequest())
