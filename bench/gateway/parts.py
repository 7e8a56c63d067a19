"""The processes of the benchmark: each ends with it, and says first where it serves."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import NamedTuple

import grpc.aio
import psutil
from radixgate.leash import leashed
from radixgate.v1.gateway_pb2 import TRUST_LIVE, ListModelsRequest, ListWorkersRequest
from radixgate.v1.gateway_pb2_grpc import GatewayStub

from gateway.summary.redis import embedded_server

READY_SECONDS = 60.0


class Part:
    """One process that serves.

    Args: its `address`; `process`; a `channel` to it.
    """

    def __init__(self, address: str, process: Process, channel: grpc.aio.Channel) -> None:
        self.address = address
        self.channel = channel
        self._process = process
        self._usage = psutil.Process(process.pid)

    @property
    def cpu_seconds(self) -> float:
        """Used so far, by all of its threads."""
        times = self._usage.cpu_times()
        return float(times.user + times.system)

    async def line(self) -> list[int]:
        """The numbers in the next line that it prints.

        Raises:
            RuntimeError: it has ended.
        """
        assert self._process.stdout
        return [*map(int, (await _line(self._process)).split())]


@asynccontextmanager
async def part(module: str, *arguments: str) -> AsyncIterator[Part]:
    """Run `bench.gateway.<module>` as long as the context lasts."""
    command = leashed(sys.executable, "-m", f"bench.gateway.{module}", *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    try:
        async with asyncio.timeout(READY_SECONDS):
            address = await _line(process)
        async with grpc.aio.insecure_channel(address) as channel:
            yield Part(address, process, channel)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _line(process: Process) -> str:
    assert process.stdout
    line = await process.stdout.readline()
    if not line:
        raise RuntimeError("a process of the benchmark ended; its error is above")
    return line.decode().strip()


class Fleet(NamedTuple):
    """Args: `gateways` that share a Redis; the one `worker`, which reports to the first of them."""

    gateways: list[Part]
    worker: Part


@asynccontextmanager
async def fleet(gateways: int, *worker: str) -> AsyncIterator[Fleet]:
    """So many gateways and a worker double with these options, when they would send it requests."""
    async with AsyncExitStack() as stack:
        redis_url = await stack.enter_async_context(embedded_server())
        parts = [
            await stack.enter_async_context(part("watched", redis_url)) for _ in range(gateways)
        ]
        first = parts[0].address
        double = await stack.enter_async_context(part("double", "--gateway", first, *worker))
        async with asyncio.timeout(READY_SECONDS):
            for each in parts:
                while not await _serves(each):  # noqa: ASYNC110 - in another process
                    await asyncio.sleep(0.05)
        yield Fleet(parts, double)


async def _serves(gateway: Part) -> bool:
    """Whether it has checked the worker's card, and trusts the worker."""
    stub = GatewayStub(gateway.channel)
    models = (await stub.ListModels(ListModelsRequest())).models
    workers = (await stub.ListWorkers(ListWorkersRequest())).workers
    return bool(models) and all(each.trust == TRUST_LIVE for each in workers)
