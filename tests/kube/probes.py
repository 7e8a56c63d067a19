"""Probes of containers: grpc, tcpSocket and exec, with periods and thresholds.

Faithful: the defaults, period, time limit, both thresholds, the grpc service's name. Not here:
httpGet, initial delays, named ports, jitter.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

Probe = dict[str, Any]
Run = Callable[[list[str]], Awaitable[int]]


async def verdicts(probe: Probe | None, address: str, run: Run) -> AsyncIterator[bool | None]:
    """After each period, for ever: True or False once enough answers in a row were that, else None.

    Without a probe it is True, once. Args: `run` a command in the container, to its exit code.
    """
    if probe is None:
        yield True
        return
    enough = {True: probe.get("successThreshold", 1), False: probe.get("failureThreshold", 3)}
    last, count = False, 0
    while True:
        ok = False
        with suppress(TimeoutError, OSError, grpc.aio.AioRpcError):
            async with asyncio.timeout(probe.get("timeoutSeconds", 1)):
                ok = await _ask(probe, address, run)
        last, count = ok, count + 1 if ok == last else 1
        yield ok if count >= enough[ok] else None
        await asyncio.sleep(probe.get("periodSeconds", 10))


async def _ask(probe: Probe, address: str, run: Run) -> bool:
    if "exec" in probe:
        return await run(probe["exec"]["command"]) == 0
    if "grpc" in probe:
        where = f"{address}:{probe['grpc']['port']}"
        async with grpc.aio.insecure_channel(where) as channel:
            request = health_pb2.HealthCheckRequest(service=probe["grpc"].get("service", ""))
            answer = await health_pb2_grpc.HealthStub(channel).Check(request)
            return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
    _, writer = await asyncio.open_connection(address, probe["tcpSocket"]["port"])
    writer.close()
    return True
