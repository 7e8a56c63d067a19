"""The client: `Client` for threads, `AsyncClient` for asyncio, the same methods in both.

    with Client("localhost:50051") as client:
        for piece in client.chat([{"role": "user", "content": "Hello"}], max_tokens=64):
            print(piece.text, end="", flush=True)

Failures raise the classes of `radixgate.errors`. `timeout` is in seconds, for the whole call. A
stream that is closed, or dropped, cancels its request at the worker.

Where Ctrl-C shall end a call but not the program, take `AsyncClient`: `asyncio.run` makes a
cancellation of it. A KeyboardInterrupt may strike inside grpc and leave one of its locks taken.
"""

# ruff: noqa: ASYNC109 - a gRPC deadline also ends the work at the other side, asyncio.timeout does not

from collections.abc import Iterable
from typing import Self, TypeVar, Unpack

import grpc

from radixgate.errors import from_rpc_error
from radixgate.limits import MAX_MESSAGE_BYTES
from radixgate.request import (
    Messages,
    Options,
    Prompt,
    chat_request,
    finish_request,
    generate_request,
    route_request,
)
from radixgate.stream import AsyncStream, Stream
from radixgate.v1.gateway_pb2 import (
    ExplainResponse,
    FinishResponse,
    ListModelsRequest,
    ListWorkersRequest,
    ModelInfo,
    PinRequest,
    RouteResponse,
    UnpinRequest,
    WorkerInfo,
)
from radixgate.v1.gateway_pb2_grpc import GatewayStub
from radixgate.v1.generate_pb2 import Pinned

Request = TypeVar("Request")
Response = TypeVar("Response")

DEFAULT_ADDRESS = "127.0.0.1:50051"

_CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A silent gateway is noticed, in milliseconds, also while a long prefill streams nothing.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Of a name with several addresses all gateways are asked in turn, not the first alone.
    ("grpc.lb_policy_name", "round_robin"),
)


class Client:
    """A gateway, for threads: any number of them may share one client.

    Args:
        address: `host:port` of any gateway, or of several, as a headless Service has them.
    """

    def __init__(self, address: str = DEFAULT_ADDRESS) -> None:
        self._address = address
        self._channel = grpc.insecure_channel(address, options=_CHANNEL_OPTIONS)
        self._stub = GatewayStub(self._channel)

    def generate(
        self, prompt: Prompt, *, timeout: float | None = None, **options: Unpack[Options]
    ) -> Stream:
        """Continue `prompt`; the request is on its way when this returns."""
        request = generate_request(prompt, **options)
        return Stream(self._stub.Generate(request, timeout=timeout), self._address)

    def chat(
        self, messages: Messages, *, timeout: float | None = None, **options: Unpack[Options]
    ) -> Stream:
        """The next message of a chat; the request is on its way when this returns."""
        request = chat_request(messages, **options)
        return Stream(self._stub.Chat(request, timeout=timeout), self._address)

    def route(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Messages | None = None,
        without: Iterable[str] = (),
        timeout: float | None = None,
        **options: Unpack[Options],
    ) -> RouteResponse:
        """Which worker to call, and the request for its `Worker.Generate`; reserves it there.

        `timeout` bounds the wait for its turn alone. `finish` ends the reservation. `without`:
        workers that have failed the request.
        """
        request = route_request(prompt, messages, without, **options)
        return self._unary(self._stub.Route, request, timeout)

    def finish(
        self,
        reservation: str,
        *,
        status: grpc.StatusCode = grpc.StatusCode.OK,
        cached_tokens: int | None = None,
        message: str = "",
        timeout: float | None = None,
    ) -> FinishResponse:
        """Tell any gateway how a request that `route` gave a `reservation` ended; may be repeated.

        `status` and `message` are those with which the call of the worker ended, `cached_tokens`
        those of its `Started`, None if that never came.
        """
        request = finish_request(reservation, status, cached_tokens, message)
        return self._unary(self._stub.Finish, request, timeout)

    def explain(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Messages | None = None,
        timeout: float | None = None,
        **options: Unpack[Options],
    ) -> ExplainResponse:
        """Where a request would go and why: every candidate with its cost terms."""
        return self._unary(self._stub.Explain, route_request(prompt, messages, **options), timeout)

    def pin(
        self,
        prompt: Prompt | None = None,
        *,
        ttl: float,
        messages: Messages | None = None,
        timeout: float | None = None,
        **options: Unpack[Options],
    ) -> Pinned:
        """Keep the KV of a prompt for `ttl` seconds; computes first what is not cached."""
        request = PinRequest(prompt=route_request(prompt, messages, **options), ttl_seconds=ttl)
        return self._unary(self._stub.Pin, request, timeout)

    def unpin(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Messages | None = None,
        timeout: float | None = None,
        **options: Unpack[Options],
    ) -> list[str]:
        """Give up the pin of a prompt; the ids of the workers that had it."""
        request = UnpinRequest(prompt=route_request(prompt, messages, **options))
        return list(self._unary(self._stub.Unpin, request, timeout).workers)

    def workers(self, model: str = "", *, timeout: float | None = None) -> list[WorkerInfo]:
        """The workers of `model`, or of all models."""
        request = ListWorkersRequest(model=model)
        return list(self._unary(self._stub.ListWorkers, request, timeout).workers)

    def models(self, *, timeout: float | None = None) -> list[ModelInfo]:
        """The models that have workers."""
        return list(self._unary(self._stub.ListModels, ListModelsRequest(), timeout).models)

    def close(self) -> None:
        """Close the connection; streams still open are cancelled."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _unary(
        self,
        method: "grpc.UnaryUnaryMultiCallable[Request, Response]",
        request: Request,
        timeout: float | None,
    ) -> Response:
        try:
            return method(request, timeout=timeout)
        except grpc.RpcError as error:
            raise from_rpc_error(error, self._address) from None


class AsyncClient:
    """A gateway, for asyncio; make it inside the event loop.

    Args:
        address: `host:port` of any gateway, or of several, as a headless Service has them.
    """

    def __init__(self, address: str = DEFAULT_ADDRESS) -> None:
        self._address = address
        self._channel = grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS)
        self._stub = GatewayStub(self._channel)

    def generate(
        self, prompt: Prompt, *, timeout: float | None = None, **options: Unpack[Options]
    ) -> AsyncStream:
        """Continue `prompt`."""
        request = generate_request(prompt, **options)
        return AsyncStream(self._stub.Generate(request, timeout=timeout), self._address)

    def chat(
        self, messages: Messages, *, timeout: float | None = None, **options: Unpack[Options]
    ) -> AsyncStream:
        """The next message of a chat."""
        request = chat_request(messages, **options)
        return AsyncStream(self._stub.Chat(request, timeout=timeout), self._address)

    async def route(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Messages | None = None,
        without: Iterable[str] = (),
        timeout: float | None = None,
        **options: Unpack[Options],
    ) -> RouteResponse:
        """As `Client.route`."""
        request = route_request(prompt, messages, without, **options)
        return await self._unary(self._stub.Route, request, timeout)

    async def finish(
        self,
        reservation: str,
        *,
        status: grpc.StatusCode = grpc.StatusCode.OK,
        cached_tokens: int | None = None,
        message: str = "",
        timeout: float | None = None,
    ) -> FinishResponse:
        """As `Client.finish`."""
        request = finish_request(reservation, status, cached_tokens, message)
        return await self._unary(self._stub.Finish, request, timeout)

    async def explain(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Messages | None = None,
        timeout: float | None = None,
        **options: Unpack[Options],
    ) -> ExplainResponse:
        """Where a request would go and why: every candidate with its cost terms."""
        request = route_request(prompt, messages, **options)
        return await self._unary(self._stub.Explain, request, timeout)

    async def pin(
        self,
        prompt: Prompt | None = None,
        *,
        ttl: float,
        messages: Messages | None = None,
        timeout: float | None = None,
        **options: Unpack[Options],
    ) -> Pinned:
        """Keep the KV of a prompt for `ttl` seconds; computes first what is not cached."""
        request = PinRequest(prompt=route_request(prompt, messages, **options), ttl_seconds=ttl)
        return await self._unary(self._stub.Pin, request, timeout)

    async def unpin(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Messages | None = None,
        timeout: float | None = None,
        **options: Unpack[Options],
    ) -> list[str]:
        """Give up the pin of a prompt; the ids of the workers that had it."""
        request = UnpinRequest(prompt=route_request(prompt, messages, **options))
        return list((await self._unary(self._stub.Unpin, request, timeout)).workers)

    async def workers(self, model: str = "", *, timeout: float | None = None) -> list[WorkerInfo]:
        """The workers of `model`, or of all models."""
        request = ListWorkersRequest(model=model)
        return list((await self._unary(self._stub.ListWorkers, request, timeout)).workers)

    async def models(self, *, timeout: float | None = None) -> list[ModelInfo]:
        """The models that have workers."""
        return list((await self._unary(self._stub.ListModels, ListModelsRequest(), timeout)).models)

    async def close(self) -> None:
        """Close the connection; streams still open are cancelled."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _unary(
        self,
        method: "grpc.aio.UnaryUnaryMultiCallable[Request, Response]",
        request: Request,
        timeout: float | None,
    ) -> Response:
        try:
            return await method(request, timeout=timeout)
        except grpc.RpcError as error:
            raise from_rpc_error(error, self._address) from None
