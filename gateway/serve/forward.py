"""One call of one worker, whose stream is passed on byte for byte.

`Started` waits for the message after it, so that a client never hears of a worker that then fails
before its first tokens. It is the only message that is decoded: the gateway adds its prediction.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import grpc.aio
from grpc import StatusCode
from radixgate.v1.generate_pb2 import GenerateRequest, GenerateResponse, Started
from radixgate.v1.worker_pb2 import DESCRIPTOR

GENERATE: Final = f"/{DESCRIPTOR.services_by_name['Worker'].full_name}/Generate"

Write = Callable[[bytes], Awaitable[None]]
"""Takes a serialized GenerateResponse."""


class StreamError(Exception):
    """The worker ended the stream badly.

    Args: its status `code` and `details`; whether anything was `delivered` before that.
    """

    def __init__(self, code: StatusCode, details: str, delivered: bool) -> None:
        super().__init__(details)
        self.code = code
        self.details = details
        self.delivered = delivered


def _tag(event: str) -> bytes:
    """First byte of a GenerateResponse with this event: its field number, length-delimited."""
    return bytes([GenerateResponse.DESCRIPTOR.fields_by_name[event].number << 3 | 2])


STARTED: Final = _tag("started")
FINISHED: Final = _tag("finished")


async def forward(
    channel: grpc.aio.Channel,
    request: GenerateRequest,
    write: Write,
    *,
    timeout: float | None,  # noqa: ASYNC109 (gRPC's own, which travels to the worker)
    predicted_tokens: int,
    begun: Callable[[Started], None],
) -> None:
    """Call a worker and write what it sends.

    Args:
        channel: to the worker.
        request: as workers take it.
        write: gets each message.
        timeout: seconds until the client's deadline.
        predicted_tokens: of the prompt, that the worker is believed to hold.
        begun: called once, with what the worker had cached, when its first tokens are there.

    Raises:
        StreamError: the worker could not be reached, refused, or ended the stream too early.
    """
    # Without serializers the messages stay bytes.
    generate: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(GENERATE)
    call = generate(request.SerializeToString(), timeout=timeout)
    held, last, delivered = b"", b"", False
    try:
        async for message in call:
            last = message[:1]
            if last == STARTED:
                held = message
                continue
            if held:
                response = GenerateResponse.FromString(held)
                response.started.predicted_tokens = predicted_tokens
                begun(response.started)
                held, delivered = b"", True
                await write(response.SerializeToString())
            await write(message)
    except grpc.aio.AioRpcError as error:
        # It was not the client that cancelled, so to the client it means this.
        cancelled = error.code() is StatusCode.CANCELLED
        code = StatusCode.UNAVAILABLE if cancelled else error.code()
        raise StreamError(code, error.details() or "", delivered) from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # NOTE: not our task was cancelled but the call, by the closing of its channel.
        raise StreamError(StatusCode.UNAVAILABLE, "the worker has left", delivered) from None
    finally:
        call.cancel()
    if last != FINISHED:
        raise StreamError(StatusCode.INTERNAL, "its stream ended without Finished", delivered)
