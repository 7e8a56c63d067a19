"""Clients in closed loops: each asks again as soon as it has its answer."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

import grpc.aio
from radixgate.prefix import TOKEN_BYTES
from radixgate.v1.gateway_pb2 import DESCRIPTOR as GATEWAY
from radixgate.v1.gateway_pb2 import FinishRequest, RouteResponse
from radixgate.v1.gateway_pb2_grpc import GatewayStub

from bench.gateway.workload import SHARED
from gateway.serve.forward import TOKENS

Ask: TypeAlias = Callable[[bytes], Awaitable[float]]
"""Sends a serialized request; returns, when the call has ended, the seconds that counted."""

SERVICE = GATEWAY.services_by_name["Gateway"].full_name
GENERATE = f"/{SERVICE}/Generate"


def first_token(channel: grpc.aio.Channel, method: str) -> Ask:
    """Calls a method that streams; until its first tokens came."""
    generate: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(method)

    async def ask(request: bytes) -> float:
        began, taken = time.perf_counter(), 0.0
        async for message in generate(request):
            if not taken and message[:1] == TOKENS:
                taken = time.perf_counter() - began
        assert taken, "the answer had no tokens"
        return taken

    return ask


def answer(channel: grpc.aio.Channel, method: str) -> Ask:
    """Calls a method that does not stream, of a gateway; until its answer came."""
    path = f"/{SERVICE}/{method}"
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)

    async def ask(request: bytes) -> float:
        began = time.perf_counter()
        await call(request)
        return time.perf_counter() - began

    return ask


def look_aside(channel: grpc.aio.Channel) -> Ask:
    """Calls Route, and Finish as if the request had been served; until Route's answer came."""
    stub = GatewayStub(channel)
    route: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICE}/Route")

    async def ask(request: bytes) -> float:
        began = time.perf_counter()
        answer = await route(request)
        taken = time.perf_counter() - began
        reservation = RouteResponse.FromString(answer).reservation
        cached = len(SHARED) // TOKEN_BYTES
        await stub.Finish(FinishRequest(reservation=reservation, cached_tokens=cached))
        return taken

    return ask


async def closed_loop(ask: Ask, requests: Iterable[bytes], clients: int) -> list[float]:
    """What each of the `requests` took, by so many clients at a time."""
    left, taken = iter(requests), list[float]()

    async def client() -> None:
        for request in left:
            taken.append(await ask(request))

    await asyncio.gather(*(client() for _ in range(clients)))
    return taken
