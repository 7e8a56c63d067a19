import grpc
import pytest
from radixgate.errors import InvalidRequest
from radixgate.prefix import pack_tokens
from radixgate.request import chat_request, finish_request, generate_request, route_request
from radixgate.v1.gateway_pb2 import ChatMessage
from radixgate.v1.generate_pb2 import Sampling, Scope, Stopping


def test_every_option_lands_in_its_field() -> None:
    request = generate_request(
        "hi",
        request_id="r",
        model="m",
        tenant="t",
        salt="s",
        adapter="a",
        temperature=0,
        top_p=0.5,
        top_k=3,
        seed=2**64 - 1,
        max_tokens=5,
        stop=["x", "y"],
        stop_token_ids=[7],
        ignore_eos=True,
        priority=-3,
    )
    assert (request.request_id, request.model, request.text) == ("r", "m", "hi")
    assert request.scope == Scope(tenant="t", salt="s", adapter="a")
    assert request.sampling == Sampling(temperature=0, top_p=0.5, top_k=3, seed=2**64 - 1)
    assert request.stopping == Stopping(
        max_tokens=5, stop=["x", "y"], stop_token_ids=[7], ignore_eos=True
    )
    assert request.priority == -3


def test_what_is_left_out_or_none_stays_unset() -> None:
    for request in generate_request("hi"), generate_request("hi", temperature=None, stop=None):
        assert not request.sampling.HasField("temperature")
        assert not request.stopping.HasField("max_tokens")
        assert not request.stopping.stop


def test_one_stop_string_is_not_its_letters() -> None:
    assert generate_request("hi", stop="END").stopping.stop == ["END"]


@pytest.mark.parametrize("prompt", [[1, 2], (1, 2), range(1, 3), pack_tokens([1, 2])])
def test_token_ids_travel_packed(prompt: object) -> None:
    assert generate_request(prompt).packed == pack_tokens([1, 2])  # type: ignore[arg-type]


def test_chat_messages() -> None:
    request = chat_request([{"role": "user", "content": "hi"}], top_k=2, priority=1)
    assert request.priority == 1
    assert list(request.messages) == [ChatMessage(role="user", content="hi")]
    assert request.sampling.top_k == 2


def test_route_takes_a_prompt_or_messages() -> None:
    assert route_request("hi", None).generate.text == "hi"
    messages = [{"role": "user", "content": "hi"}]
    assert route_request(None, messages).chat.messages[0].content == "hi"
    for prompt, chat in ((None, None), ("hi", messages)):
        with pytest.raises(TypeError, match="one of them"):
            route_request(prompt, chat)


def test_values_that_no_field_can_hold() -> None:
    with pytest.raises(InvalidRequest, match=r"cached_tokens: .*out of range"):
        finish_request("g-1-m", grpc.StatusCode.OK, -1, "")
    with pytest.raises(InvalidRequest, match="temprature"):
        generate_request("hi", temprature=1)  # type: ignore[call-arg]
    with pytest.raises(InvalidRequest, match="outside"):
        generate_request([-1])
    with pytest.raises(InvalidRequest, match=r"max_tokens: .*out of range"):
        generate_request("hi", max_tokens=-1)
    with pytest.raises(InvalidRequest, match=r"messages\[0\]: .*name"):
        chat_request([{"role": "user", "name": "x"}])


@pytest.mark.parametrize("field", ["model", "tenant", "stop"])
def test_text_that_is_not_unicode_fails_with_its_field(field: str) -> None:
    broken = b"\xff".decode(errors="surrogateescape")
    with pytest.raises(InvalidRequest, match=rf"{field}: .*surrogates"):
        generate_request("hi", **{field: broken})  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=r"prompt: .*surrogates"):
        generate_request(broken)
    with pytest.raises(InvalidRequest, match=r"messages\[0\]: .*surrogates"):
        chat_request([{"role": "user", "content": broken}])
