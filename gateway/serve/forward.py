"""One call of one worker, as the bytes that it sends."""

import asyncio
from typing import Final

import grpc.aio
from grpc import StatusCode
from radixgate.v1.generate_pb2 import GenerateRequest, GenerateResponse
from radixgate.v1.worker_pb2 import DESCRIPTOR

GENERATE: Final = f"/{DESCRIPTOR.services_by_name['Worker'].full_name}/Generate"


class StreamError(Exception):
    """The worker could not be reached, refused, or ended the stream too early.

    Args: its status `code` and `details`.
    """

    def __init__(self, code: StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


def _tag(event: str) -> bytes:
    """First byte of a GenerateResponse with this event: its field number, length-delimited."""
    return bytes([GenerateResponse.DESCRIPTOR.fields_by_name[event].number << 3 | 2])


STARTED: Final = _tag("started")
TOKENS: Final = _tag("tokens")
FINISHED: Final = _tag("finished")


class WorkerStream:
    """Calls a worker when made; whoever makes it calls `cancel` in the end.

    Args:
        channel: to the worker.
        request: as workers take it.
        timeout: seconds until the client's deadline.
    """

    def __init__(
        self, channel: grpc.aio.Channel, request: GenerateRequest, timeout: float | None
    ) -> None:
        # Without serializers the messages stay bytes.
        generate: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(GENERATE)
        self._call = generate(request.SerializeToString(), timeout=timeout)
        self._messages = aiter(self._call)
        self._finished = False

    async def read(self) -> bytes | None:
        """The next message; None when the stream has ended after Finished.

        Raises:
            StreamError: see there.
        """
        try:
            message = await anext(self._messages)
        except StopAsyncIteration:
            if self._finished:
                return None
            raise StreamError(StatusCode.INTERNAL, "its stream ended without Finished") from None
        except grpc.aio.AioRpcError as error:
            # NOTE: whatever happens after the last message, all was said.
            if self._finished:
                return None
            # It was not the client that cancelled, so to the client it means this.
            cancelled = error.code() is StatusCode.CANCELLED
            code = StatusCode.UNAVAILABLE if cancelled else error.code()
            raise StreamError(code, error.details() or "") from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            if self._finished:
                return None
            # NOTE: not our task was cancelled but the call, by the closing of its channel.
            raise StreamError(StatusCode.UNAVAILABLE, "the worker has left") from None
        self._finished = message[:1] == FINISHED
        return message

    def cancel(self) -> None:
        """End the call if it still runs."""
        self._call.cancel()
