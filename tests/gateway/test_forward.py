"""One call of a worker: what passes, what is added, what a failure is."""

import asyncio
from collections.abc import AsyncIterator, Callable

import grpc
import grpc.aio
import pytest
from grpc import StatusCode
from radixgate.prefix import pack_tokens
from radixgate.v1.generate_pb2 import Finished, GenerateRequest, GenerateResponse, Started, Tokens

from gateway.serve.forward import FINISHED, STARTED, StreamError, forward
from tests.gateway.doubles import Abort, Script, ScriptedWorker, echo, make_card

REQUEST = GenerateRequest(request_id="r", packed=pack_tokens(range(200)))
FAILURE = Abort(StatusCode.UNAVAILABLE, "scripted failure")


def nothing(started: Started) -> None:
    """Nobody wants to know."""


class Forwarding:
    """Forwards REQUEST to a worker with a script, and keeps what was written."""

    def __init__(self, script: Script, seconds: float | None = None) -> None:
        self.seconds = seconds
        self.worker = ScriptedWorker("w", make_card(), script)
        self.written: list[bytes] = []
        self.begun: list[Started] = []

    @property
    def events(self) -> list[str | None]:
        return [
            GenerateResponse.FromString(message).WhichOneof("event") for message in self.written
        ]

    async def run(self, on_write: Callable[[], None] = lambda: None) -> None:
        async def write(message: bytes) -> None:
            self.written.append(message)
            on_write()

        async with self.worker.running(), grpc.aio.insecure_channel(self.worker.address) as channel:
            await forward(
                channel,
                REQUEST,
                write,
                timeout=self.seconds,
                predicted_tokens=128,
                begun=self.begun.append,
            )


def script(*steps: GenerateResponse | Abort) -> Script:
    async def play(
        request: GenerateRequest, worker: ScriptedWorker
    ) -> AsyncIterator[GenerateResponse]:
        for step in steps:
            if isinstance(step, Abort):
                raise step
            yield step

    return play


A_STARTED = GenerateResponse(started=Started(request_id="r", worker="w", cached_tokens=64))
FINISH = GenerateResponse(finished=Finished())
SOME_TOKENS = GenerateResponse(tokens=Tokens(ids=[1], text="x"))


def test_tags_tell_events_apart() -> None:
    assert A_STARTED.SerializeToString()[:1] == STARTED
    assert FINISH.SerializeToString()[:1] == FINISHED
    assert SOME_TOKENS.SerializeToString()[:1] not in (STARTED, FINISHED)


async def test_a_stream_passes_and_the_prediction_is_added() -> None:
    forwarding = Forwarding(echo)
    await forwarding.run()
    assert forwarding.events == ["started", "tokens", "tokens", "finished"]
    first = GenerateResponse.FromString(forwarding.written[0]).started
    assert (first.worker, first.prompt_tokens, first.predicted_tokens) == ("w", 200, 128)
    assert forwarding.begun == [first]
    assert forwarding.worker.requests == [REQUEST]


async def test_bytes_that_this_gateway_does_not_know_pass_too() -> None:
    # Field 900 of Tokens, from a worker of a later version.
    later = b"\x12\x05\xa2\x38\x02ok"
    forwarding = Forwarding(script(A_STARTED, GenerateResponse.FromString(later), FINISH))
    await forwarding.run()
    assert forwarding.written[1] == later


@pytest.mark.parametrize(
    ("steps", "delivered"),
    [
        ([FAILURE], False),
        ([A_STARTED, FAILURE], False),
        ([A_STARTED, SOME_TOKENS, FAILURE], True),
    ],
)
async def test_a_failure_says_whether_the_client_has_tokens(
    steps: list[GenerateResponse | Abort], delivered: bool
) -> None:
    forwarding = Forwarding(script(*steps))
    with pytest.raises(StreamError) as caught:
        await forwarding.run()
    assert (caught.value.code, caught.value.details) == (StatusCode.UNAVAILABLE, "scripted failure")
    assert caught.value.delivered is delivered
    assert bool(forwarding.written) is delivered


async def test_a_stream_without_an_end_is_a_failure() -> None:
    with pytest.raises(StreamError, match="without Finished"):
        await Forwarding(script(A_STARTED, SOME_TOKENS)).run()


async def test_a_worker_that_cancels_is_not_taken_for_a_client_that_goes() -> None:
    with pytest.raises(StreamError) as caught:
        await Forwarding(script(A_STARTED, Abort(StatusCode.CANCELLED, "gone"))).run()
    assert caught.value.code is StatusCode.UNAVAILABLE


async def test_nobody_there() -> None:
    async def write(message: bytes) -> None:
        raise AssertionError(message)

    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        with pytest.raises(StreamError) as caught:
            await forward(channel, REQUEST, write, timeout=5, predicted_tokens=0, begun=nothing)
    assert caught.value.code is StatusCode.UNAVAILABLE


async def endless(
    request: GenerateRequest, worker: ScriptedWorker
) -> AsyncIterator[GenerateResponse]:
    """Tokens until cancelled."""
    yield A_STARTED
    while True:
        yield SOME_TOKENS
        await asyncio.sleep(0.001)


async def test_the_deadline_travels_to_the_worker() -> None:
    forwarding = Forwarding(endless, seconds=0.2)
    with pytest.raises(StreamError) as caught:
        await forwarding.run()
    assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(forwarding.worker.cancelled.wait(), 10)


async def test_a_client_that_goes_cancels_at_the_worker() -> None:
    forwarding = Forwarding(endless)
    first = asyncio.Event()
    running = asyncio.create_task(forwarding.run(on_write=first.set))
    await asyncio.wait_for(first.wait(), 10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.wait_for(forwarding.worker.cancelled.wait(), 10)
