"""Answers as they stream in: `Stream` for threads, `AsyncStream` for asyncio."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

import grpc

from radixgate.errors import Cancelled, RadixgateError, from_rpc_error
from radixgate.v1.generate_pb2 import Finished, GenerateResponse, Started


class _Call(Protocol):
    """A call of grpc that streams in."""

    def __iter__(self) -> Iterator[GenerateResponse]: ...

    def cancel(self) -> bool: ...


class Piece(NamedTuple):
    """What one message added. `text` may be empty while a character or stop string is undecided."""

    ids: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer. `started` names the worker, `finished` has the reason and the counts."""

    ids: tuple[int, ...]
    text: str
    started: Started
    finished: Finished

    @classmethod
    def of(
        cls, pieces: Sequence[Piece], started: Started | None, finished: Finished | None
    ) -> "Completion":
        """All pieces of a stream that has finished, joined."""
        assert started is not None
        assert finished is not None
        ids = tuple(token for piece in pieces for token in piece.ids)
        return cls(ids, "".join(piece.text for piece in pieces), started, finished)


class _StreamState:
    """What has been received of one stream: `started` and `finished` are None until they came."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.started: Started | None = None
        self.finished: Finished | None = None

    def _take(self, response: GenerateResponse) -> Piece | None:
        """Note what the message tells; the piece if it carries one."""
        if response.HasField("tokens"):
            return Piece(tuple(response.tokens.ids), response.tokens.text)
        if response.HasField("started"):
            self.started = response.started
        elif response.HasField("finished"):
            self.finished = response.finished
        return None

    def _check_end(self) -> None:
        if self.started is None or self.finished is None:
            raise RadixgateError(f"the gateway at {self._address} ended a stream in its middle")


class Stream(_StreamState, Iterator[Piece]):
    """The answer as it comes. Iterate it, or ask for its `result`; `close` cancels it."""

    def __init__(self, call: _Call, address: str) -> None:
        super().__init__(address)
        self._call = call
        self._closed = False

    def __next__(self) -> Piece:
        try:
            for response in self._call:
                if piece := self._take(response):
                    return piece
        except grpc.RpcError as error:
            if self._closed:
                raise _closed_here() from None
            raise from_rpc_error(error, self._address) from None
        self._check_end()
        raise StopIteration

    def result(self) -> Completion:
        """Wait for the end; the pieces from here on, joined."""
        return Completion.of(list(self), self.started, self.finished)

    def close(self) -> None:
        """Cancel the request unless it has finished."""
        self._closed = True
        self._call.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncStream(_StreamState, AsyncIterator[Piece]):
    """As `Stream`, for asyncio. Cancelling the task that reads it cancels the request."""

    def __init__(
        self, call: "grpc.aio.UnaryStreamCall[Any, GenerateResponse]", address: str
    ) -> None:
        super().__init__(address)
        self._call = call
        self._closed = False

    async def __anext__(self) -> Piece:
        try:
            async for response in self._call:
                if piece := self._take(response):
                    return piece
        except grpc.RpcError as error:
            raise from_rpc_error(error, self._address) from None
        except asyncio.CancelledError:
            # NOTE: grpc.aio tells of a closed call in the words for a cancelled task.
            task = asyncio.current_task()
            if self._closed and task and not task.cancelling():
                raise _closed_here() from None
            raise
        self._check_end()
        raise StopAsyncIteration

    async def result(self) -> Completion:
        """Wait for the end; the pieces from here on, joined."""
        return Completion.of([piece async for piece in self], self.started, self.finished)

    def close(self) -> None:
        """Cancel the request unless it has finished."""
        self._closed = True
        self._call.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def _closed_here() -> Cancelled:
    return Cancelled("the stream was closed", grpc.StatusCode.CANCELLED)
