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


class Tally:
    """Turns single answers into verdicts, as the thresholds say."""

    def __init__(self, probe: Probe) -> None:
        self._needed = {
            True: probe.get("successThreshold", 1),
            False: probe.get("failureThreshold", 3),
        }
        self._last, self._count = False, 0

    def verdict(self, ok: bool) -> bool | None:
        """True or False once enough answers in a row were that; else None."""
        self._count = self._count + 1 if ok == self._last else 1
        self._last = ok
        return ok if self._count >= self._needed[ok] else None


async def verdicts(probe: Probe | None, address: str, run: Run) -> AsyncIterator[bool | None]:
    """The verdict after each period, for ever; without a probe, one of success.

    Args: `run` a command in the container, to its exit code.
    """
    if probe is None:
        yield True
        return
    tally = Tally(probe)
    while True:
        ok = False
        with suppress(TimeoutError, OSError, grpc.aio.AioRpcError):
            async with asyncio.timeout(probe.get("timeoutSeconds", 1)):
                ok = await _ask(probe, address, run)
        yield tally.verdict(ok)
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
