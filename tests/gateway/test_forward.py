"""One call of a worker: what it sends, and what a failure is."""

import asyncio
from collections.abc import AsyncIterator, Callable

import grpc
import grpc.aio
import pytest
from grpc import StatusCode
from radixgate.prefix import pack_tokens
from radixgate.v1.generate_pb2 import Finished, GenerateRequest, GenerateResponse, Started, Tokens

from gateway.serve.forward import FINISHED, STARTED, TOKENS, StreamError, WorkerStream
from tests.gateway.doubles import Abort, Script, ScriptedWorker, make_card

REQUEST = GenerateRequest(request_id="r", packed=pack_tokens(range(200)))
FAILURE = Abort(StatusCode.UNAVAILABLE, "scripted failure")


class Forwarding:
    """Reads the stream of a worker with a script, to its end."""

    def __init__(self, script: Script, seconds: float | None = None) -> None:
        self.seconds = seconds
        self.worker = ScriptedWorker("w", make_card(), script)
        self.read: list[bytes] = []

    @property
    def events(self) -> list[str | None]:
        return [GenerateResponse.FromString(message).WhichOneof("event") for message in self.read]

    async def run(self, on_read: Callable[[], None] = lambda: None) -> None:
        async with self.worker.running(), grpc.aio.insecure_channel(self.worker.address) as channel:
            stream = WorkerStream(channel, REQUEST, self.seconds)
            try:
                while (message := await stream.read()) is not None:
                    self.read.append(message)
                    on_read()
            finally:
                stream.cancel()


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
    assert SOME_TOKENS.SerializeToString()[:1] == TOKENS
    assert len({STARTED, FINISHED, TOKENS}) == 3


async def test_a_stream_is_read_as_it_was_sent() -> None:
    # Field 900 of Tokens, from a worker of a later version.
    later = b"\x12\x05\xa2\x38\x02ok"
    sent = [A_STARTED, SOME_TOKENS, GenerateResponse.FromString(later), FINISH]
    forwarding = Forwarding(script(*sent))
    await forwarding.run()
    assert forwarding.read == [message.SerializeToString() for message in sent]
    assert forwarding.read[2] == later
    assert forwarding.worker.requests == [REQUEST]


@pytest.mark.parametrize("before", [[], [A_STARTED], [A_STARTED, SOME_TOKENS]])
async def test_a_failure_says_why(before: list[GenerateResponse]) -> None:
    forwarding = Forwarding(script(*before, FAILURE))
    with pytest.raises(StreamError) as caught:
        await forwarding.run()
    assert (caught.value.code, caught.value.details) == (StatusCode.UNAVAILABLE, "scripted failure")
    assert len(forwarding.read) == len(before)


async def test_a_stream_without_an_end_is_a_failure() -> None:
    with pytest.raises(StreamError, match="without Finished"):
        await Forwarding(script(A_STARTED, SOME_TOKENS)).run()


async def test_what_happens_after_finished_is_no_failure() -> None:
    forwarding = Forwarding(script(A_STARTED, SOME_TOKENS, FINISH, FAILURE))
    await forwarding.run()
    assert forwarding.events == ["started", "tokens", "finished"]


async def test_a_worker_that_cancels_is_not_taken_for_a_client_that_goes() -> None:
    with pytest.raises(StreamError) as caught:
        await Forwarding(script(A_STARTED, Abort(StatusCode.CANCELLED, "gone"))).run()
    assert caught.value.code is StatusCode.UNAVAILABLE


async def test_nobody_there() -> None:
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        with pytest.raises(StreamError) as caught:
            await WorkerStream(channel, REQUEST, 5).read()
    assert caught.value.code is StatusCode.UNAVAILABLE


async def endless(
    request: GenerateRequest, worker: ScriptedWorker
) -> AsyncIterator[GenerateResponse]:
    """Tokens until cancelled."""
    yield A_STARTED
    while True:
        yield SOME_TOKENS
        await asyncio.sleep(0.001)


async def read_all(stream: WorkerStream) -> None:
    while await stream.read() is not None:
        pass


async def test_a_channel_that_closes_is_a_worker_that_has_left() -> None:
    worker = ScriptedWorker("w", make_card(), endless)
    async with worker.running():
        channel = grpc.aio.insecure_channel(worker.address)
        stream = WorkerStream(channel, REQUEST, None)
        await stream.read()
        await channel.close()
        with pytest.raises(StreamError) as caught:
            await read_all(stream)
    assert caught.value.code is StatusCode.UNAVAILABLE


async def test_the_deadline_travels_to_the_worker() -> None:
    forwarding = Forwarding(endless, seconds=0.2)
    with pytest.raises(StreamError) as caught:
        await forwarding.run()
    assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(forwarding.worker.cancelled.wait(), 10)


async def test_a_client_that_goes_cancels_at_the_worker() -> None:
    forwarding = Forwarding(endless)
    first = asyncio.Event()
    running = asyncio.create_task(forwarding.run(on_read=first.set))
    await asyncio.wait_for(first.wait(), 10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.wait_for(forwarding.worker.cancelled.wait(), 10)
