"""Requests are checked and made ready for workers, or refused with the status that fits."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from grpc import StatusCode
from radixgate.namespace import Namespace
from radixgate.prefix import pack_tokens
from radixgate.refused import RefusedError
from radixgate.v1.gateway_pb2 import ChatMessage, ChatRequest
from radixgate.v1.generate_pb2 import GenerateRequest, Sampling, Scope, Stopping, TokenIds

from gateway.fleet.fleet import Fleet
from gateway.serve.models import Models
from gateway.serve.prepare import Prepared, Preparer, check
from gateway.summary.events import Registered, Registration
from gateway.text.codecs import Codecs
from tests.gateway.doubles import MAX_CONTEXT, VOCABULARY, make_card

HI = [ChatMessage(role="user", content="1")]


def make_fleet(*models: str) -> Fleet:
    fleet = Fleet(lease=5.0, clock=lambda: 0.0)
    for model in models:
        card = make_card(model)
        registration = Registration("w", 1, "w:1", model, card.fingerprint, 16, 64, 1000)
        fleet.observe(model, Registered(registration, 0))
        fleet.admit(registration, card)
    return fleet


async def prepare(request: GenerateRequest | ChatRequest, fleet: Fleet, codecs: Codecs) -> Prepared:
    check(request)
    card = Models(fleet, fleet.models, {}).card(request.model)
    return await Preparer(codecs).prepare(request, card)


@pytest.fixture
async def codecs() -> AsyncIterator[Codecs]:
    with ThreadPoolExecutor(1) as executor:
        yield Codecs(executor)


async def test_everything_a_worker_needs_is_there(codecs: Codecs) -> None:
    request = GenerateRequest(
        text="1 2",
        scope=Scope(tenant="t", salt="s"),
        sampling=Sampling(temperature=0.5),
        stopping=Stopping(max_tokens=3),
    )
    ready = await prepare(request, make_fleet("m"), codecs)
    assert ready.model == ready.request.model == "m"
    assert ready.request.packed == ready.prompt.packed == pack_tokens([6, 7])
    assert ready.request.WhichOneof("prompt") == "packed"
    assert ready.request.request_id
    assert ready.request.sampling.HasField("seed")
    assert ready.request.sampling.temperature == 0.5
    assert (ready.request.scope, ready.request.stopping) == (request.scope, request.stopping)
    assert ready.prompt.stride == 64
    assert ready.prompt.seed == Namespace("fingerprint of m", "", "t", "s").seed()


async def test_what_the_client_chose_stays(codecs: Codecs) -> None:
    request = GenerateRequest(
        request_id="mine",
        model="m",
        tokens=TokenIds(ids=[5]),
        sampling=Sampling(seed=0),
        priority=2,
    )
    ready = (await prepare(request, make_fleet("m", "other"), codecs)).request
    assert ready.priority == 2
    assert (ready.request_id, ready.model, ready.sampling.seed) == ("mine", "m", 0)


async def test_two_requests_draw_two_seeds(codecs: Codecs) -> None:
    fleet = make_fleet("m")
    first, second = [await prepare(GenerateRequest(text="1"), fleet, codecs) for _ in range(2)]
    assert first.request.sampling.seed != second.request.sampling.seed
    assert first.request.request_id != second.request.request_id


async def test_chat_is_rendered_with_the_template(codecs: Codecs) -> None:
    ready = await prepare(ChatRequest(messages=HI), make_fleet("m"), codecs)
    assert ready.request.packed == pack_tokens([0, 2, 6, 1, 0, 3])


BAD = {
    "no prompt": GenerateRequest(),
    "empty text": GenerateRequest(text=""),
    "text of no tokens": GenerateRequest(text=" "),
    "no ids": GenerateRequest(tokens=TokenIds()),
    "cut packed": GenerateRequest(packed=b"abc"),
    "token outside the vocabulary": GenerateRequest(tokens=TokenIds(ids=[len(VOCABULARY)])),
    "prompt of the whole context": GenerateRequest(packed=pack_tokens([5] * MAX_CONTEXT)),
    "text that cannot fit": GenerateRequest(text="1 " * 33 * MAX_CONTEXT),
    "chat that cannot fit": ChatRequest(
        messages=[ChatMessage(role="user", content="1" * 33 * MAX_CONTEXT)] * 2
    ),
    "negative temperature": GenerateRequest(text="1", sampling=Sampling(temperature=-1)),
    "absurd temperature": GenerateRequest(text="1", sampling=Sampling(temperature=1e9)),
    "temperature that is no number": GenerateRequest(
        text="1", sampling=Sampling(temperature=float("nan"))
    ),
    "top_p of 0": GenerateRequest(text="1", sampling=Sampling(top_p=0)),
    "no tokens wanted": GenerateRequest(text="1", stopping=Stopping(max_tokens=0)),
    "empty stop string": GenerateRequest(text="1", stopping=Stopping(stop=[""])),
    "no messages": ChatRequest(),
    "no role": ChatRequest(messages=[ChatMessage(content="1")]),
    "no model named of two": GenerateRequest(text="1"),
}


@pytest.mark.parametrize("case", BAD)
async def test_invalid_arguments(case: str, codecs: Codecs) -> None:
    fleet = make_fleet("m", "n") if case == "no model named of two" else make_fleet("m")
    with pytest.raises(RefusedError) as caught:
        await prepare(BAD[case], fleet, codecs)
    assert caught.value.code is StatusCode.INVALID_ARGUMENT, caught.value.message


async def test_a_chat_that_the_template_refuses(codecs: Codecs) -> None:
    fleet = Fleet(lease=5.0, clock=lambda: 0.0)
    registration = Registration("w", 1, "w:1", "m", "f", 16, 64, 1000)
    fleet.observe("m", Registered(registration, 0))
    fleet.admit(registration, make_card("m", chat_template="{{ raise_exception('no user') }}"))
    with pytest.raises(RefusedError, match="no user") as caught:
        await prepare(ChatRequest(messages=HI), fleet, codecs)
    assert caught.value.code is StatusCode.INVALID_ARGUMENT
