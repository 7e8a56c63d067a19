import asyncio
import gc
import socket
from collections.abc import Iterator

import grpc
import pytest
from radixgate import errors
from radixgate.client import AsyncClient, Client
from radixgate.refused import RETRY_PUSHBACK
from radixgate.v1.gateway_pb2 import FINISH_OUTCOME_COUNTED
from radixgate.v1.generate_pb2 import FINISH_REASON_STOP, GenerateResponse, Started, Tokens

from tests.contract.gateway_double import GatewayDouble, Hang, answer, serving

MESSAGES = [{"role": "user", "content": "hi"}]
STARTED = GenerateResponse(started=Started(worker="w0"))

STATUSES = [
    (grpc.StatusCode.INVALID_ARGUMENT, errors.InvalidRequest),
    (grpc.StatusCode.NOT_FOUND, errors.NotFound),
    (grpc.StatusCode.FAILED_PRECONDITION, errors.FailedPrecondition),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.Overloaded),
    (grpc.StatusCode.UNAVAILABLE, errors.Unavailable),
    (grpc.StatusCode.DEADLINE_EXCEEDED, errors.DeadlineExceeded),
    (grpc.StatusCode.CANCELLED, errors.Unavailable),
    (grpc.StatusCode.INTERNAL, errors.RadixgateError),
]


@pytest.fixture
def gateway() -> Iterator[GatewayDouble]:
    with serving(GatewayDouble()) as double:
        yield double


@pytest.fixture
def client(gateway: GatewayDouble) -> Iterator[Client]:
    with Client(gateway.address) as client:
        yield client


@pytest.fixture
def unused_address() -> Iterator[str]:
    """An address that is bound, so that no one else gets it, but does not listen."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def test_pieces_stream_and_the_ends_are_kept(client: Client) -> None:
    stream = client.generate("hi")
    assert [(piece.ids, piece.text) for piece in stream] == [
        ((0,), "Hello"),
        ((1,), ", "),
        ((2,), "world"),
    ]
    assert stream.started is not None
    assert stream.started.worker == "w0"
    assert stream.finished is not None
    assert stream.finished.reason == FINISH_REASON_STOP


def test_several_gateways_are_asked_in_turn(gateway: GatewayDouble) -> None:
    with serving(GatewayDouble()) as other:
        both = f"ipv4:{gateway.address},{other.address}"
        with Client(both) as client:
            for _ in range(20):
                client.models()
        assert gateway.requests
        assert other.requests


def test_result_joins_the_pieces(client: Client) -> None:
    completion = client.chat(MESSAGES).result()
    assert completion.text == "Hello, world"
    assert completion.ids == (0, 1, 2)
    assert completion.started.cached_tokens == 64
    assert completion.finished.output_tokens == 3


def test_requests_arrive_as_built(client: Client, gateway: GatewayDouble) -> None:
    client.generate([1], top_k=4).result()
    client.chat(MESSAGES, max_tokens=5).result()
    client.route("hi", model="m", without=["w1", "w2"])
    client.finish("g-1-m", status=grpc.StatusCode.UNAVAILABLE, message="gone")
    client.finish("g-2-m", cached_tokens=0)
    client.explain(messages=MESSAGES)
    client.workers("m")
    generate, chat, route, failed, finished, explain, workers = gateway.requests
    assert generate.sampling.top_k == 4
    assert chat.messages[0].content == "hi"
    assert chat.stopping.max_tokens == 5
    assert route.generate.model == "m"
    assert list(route.without) == ["w1", "w2"]
    assert (failed.reservation, failed.status, failed.message) == ("g-1-m", 14, "gone")
    assert not failed.HasField("cached_tokens")
    assert (finished.reservation, finished.status) == ("g-2-m", 0)
    assert finished.HasField("cached_tokens")
    assert explain.chat.messages[0].role == "user"
    assert workers.model == "m"


def test_unary_calls_answer_in_contract_messages(client: Client) -> None:
    assert client.route("hi").worker == "w0"
    assert client.finish("g-1-m").outcome == FINISH_OUTCOME_COUNTED
    assert client.explain("hi").candidates[0].chosen
    assert [worker.worker for worker in client.workers()] == ["w0"]
    assert [model.model for model in client.models()] == ["tiny"]


@pytest.mark.parametrize(("code", "kind"), STATUSES)
def test_each_status_has_its_exception(
    client: Client, gateway: GatewayDouble, code: grpc.StatusCode, kind: type[Exception]
) -> None:
    gateway.unary_error = (code, "what was found")
    gateway.script = [(code, "what was found")]
    for call in client.workers, client.generate("hi").result:
        with pytest.raises(errors.RadixgateError, match="what was found") as caught:
            call()
        assert type(caught.value) is kind
        assert caught.value.code is code


@pytest.mark.parametrize(
    ("trailers", "seconds"),
    [
        ((("other", "1"), (RETRY_PUSHBACK, "1500")), 1.5),
        (((RETRY_PUSHBACK, "-1"),), None),
        ((), None),
    ],
)
async def test_an_overloaded_gateway_says_when_to_retry(
    gateway: GatewayDouble, trailers: tuple[tuple[str, str], ...], seconds: float | None
) -> None:
    error = (grpc.StatusCode.RESOURCE_EXHAUSTED, "busy")
    gateway.trailers, gateway.unary_error, gateway.script = trailers, error, [error]
    with Client(gateway.address) as client:
        for call in client.workers, client.generate("hi").result:
            with pytest.raises(errors.Overloaded) as caught:
                await asyncio.to_thread(call)
            assert caught.value.retry_seconds == seconds
    async with AsyncClient(gateway.address) as asking:
        for coroutine in asking.workers(), asking.generate("hi").result():
            with pytest.raises(errors.Overloaded) as caught:
                await coroutine
            assert caught.value.retry_seconds == seconds


def test_an_error_in_mid_stream_comes_after_its_pieces(
    client: Client, gateway: GatewayDouble
) -> None:
    gateway.script = [*list(answer("a"))[:2], (grpc.StatusCode.UNAVAILABLE, "worker died")]
    stream = client.generate("hi")
    assert next(stream).text == "a"
    with pytest.raises(errors.Unavailable, match="worker died"):
        next(stream)


def test_a_stream_without_its_end_is_not_taken_for_an_answer(
    client: Client, gateway: GatewayDouble
) -> None:
    gateway.script = [STARTED, GenerateResponse(tokens=Tokens(ids=[1], text="a"))]
    with pytest.raises(errors.RadixgateError, match="in its middle"):
        client.generate("hi").result()


def test_nobody_answers(unused_address: str) -> None:
    with (
        Client(unused_address) as client,
        pytest.raises(errors.Unavailable, match=f"no gateway answers at {unused_address}"),
    ):
        client.workers(timeout=10)


def test_the_timeout_holds_for_the_whole_stream(client: Client, gateway: GatewayDouble) -> None:
    gateway.script = [STARTED, Hang()]
    with pytest.raises(errors.DeadlineExceeded):
        client.generate("hi", timeout=0.2).result()


def test_closing_a_stream_cancels_it(client: Client, gateway: GatewayDouble) -> None:
    gateway.script = [*list(answer("a"))[:2], Hang()]
    with client.generate("hi") as stream:
        next(stream)
        assert not gateway.cancelled.is_set()
    assert gateway.cancelled.wait(10)
    with pytest.raises(errors.Cancelled):
        next(stream)


def test_dropping_a_stream_cancels_it(client: Client, gateway: GatewayDouble) -> None:
    gateway.script = [*list(answer("a"))[:2], Hang()]
    for _ in client.generate("hi"):
        break
    gc.collect()
    assert gateway.cancelled.wait(10)


def test_messages_over_grpcs_own_limit_of_4_mib_pass(
    client: Client, gateway: GatewayDouble
) -> None:
    gateway.script = list(answer("x" * 5 * 2**20))
    assert len(client.generate("y" * 5 * 2**20).result().text) == 5 * 2**20


async def test_async_streams_and_joins(gateway: GatewayDouble) -> None:
    async with AsyncClient(gateway.address) as client:
        assert [piece.text async for piece in client.generate("hi")] == ["Hello", ", ", "world"]
        completion = await client.chat(MESSAGES).result()
        assert (completion.text, completion.ids) == ("Hello, world", (0, 1, 2))


async def test_async_unary_calls(gateway: GatewayDouble) -> None:
    async with AsyncClient(gateway.address) as client:
        assert (await client.route("hi", without=["w1"])).worker == "w0"
        assert (await client.finish("g-1-m")).outcome == FINISH_OUTCOME_COUNTED
        assert (await client.explain(messages=MESSAGES)).candidates[0].chosen
        assert [worker.worker for worker in await client.workers()] == ["w0"]
        assert [model.model for model in await client.models()] == ["tiny"]


@pytest.mark.parametrize(("code", "kind"), STATUSES)
async def test_async_each_status_has_its_exception(
    gateway: GatewayDouble, code: grpc.StatusCode, kind: type[Exception]
) -> None:
    gateway.unary_error = (code, "what was found")
    gateway.script = [(code, "what was found")]
    async with AsyncClient(gateway.address) as client:
        for call in client.workers, client.generate("hi").result:
            with pytest.raises(errors.RadixgateError, match="what was found") as caught:
                await call()
            assert type(caught.value) is kind


async def test_async_closing_a_stream_cancels_it(gateway: GatewayDouble) -> None:
    gateway.script = [*list(answer("a"))[:2], Hang()]
    async with AsyncClient(gateway.address) as client:
        async with client.generate("hi") as stream:
            await anext(stream)
        assert await asyncio.to_thread(gateway.cancelled.wait, 10)
        with pytest.raises(errors.Cancelled):
            await anext(stream)


async def test_async_a_cancelled_reader_cancels_the_request(gateway: GatewayDouble) -> None:
    gateway.script = [*list(answer("a"))[:2], Hang()]
    async with AsyncClient(gateway.address) as client:
        stream = client.generate("hi")
        await anext(stream)
        reader = asyncio.create_task(stream.result())
        await asyncio.sleep(0)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert await asyncio.to_thread(gateway.cancelled.wait, 10)
