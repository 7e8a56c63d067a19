"""Probes of containers: grpc, httpGet, tcpSocket and exec, with periods and thresholds.

Faithful: the defaults, initial delay, period, time limit, both thresholds, named ports, the grpc
service's name, status codes 200 to 399. Not here: TLS, headers, jitter.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import aiohttp
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


async def verdicts(
    probe: Probe, address: str, ports: dict[str, int], run: Run
) -> AsyncIterator[bool | None]:
    """The verdict after each period, for ever.

    Args: `ports` of the container by name; `run` a command in the container, to its exit code.
    """
    tally = Tally(probe)
    await asyncio.sleep(probe.get("initialDelaySeconds", 0))
    while True:
        ok = False
        with suppress(TimeoutError, OSError, aiohttp.ClientError, grpc.aio.AioRpcError):
            async with asyncio.timeout(probe.get("timeoutSeconds", 1)):
                ok = await _ask(probe, address, ports, run)
        yield tally.verdict(ok)
        await asyncio.sleep(probe.get("periodSeconds", 10))


async def _ask(probe: Probe, address: str, ports: dict[str, int], run: Run) -> bool:
    if "exec" in probe:
        return await run(probe["exec"]["command"]) == 0
    where = probe.get("grpc") or probe.get("httpGet") or probe["tcpSocket"]
    port = ports.get(where["port"], where["port"])
    if "grpc" in probe:
        async with grpc.aio.insecure_channel(f"{address}:{port}") as channel:
            request = health_pb2.HealthCheckRequest(service=where.get("service") or "")
            answer = await health_pb2_grpc.HealthStub(channel).Check(request)
            return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
    if "httpGet" in probe:
        url = f"http://{address}:{port}{where.get('path', '/')}"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return 200 <= response.status < 400
    _, writer = await asyncio.open_connection(address, port)
    writer.close()
    return True
