"""`radixgate gateway --processes 2`: two gateways on one port, and the parent over them."""

import asyncio
import re
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from urllib.error import URLError

import grpc.aio
import psutil
import pytest
from radixgate.prefix import pack_tokens
from radixgate.v1.gateway_pb2 import ListModelsRequest
from radixgate.v1.gateway_pb2_grpc import GatewayStub
from radixgate.v1.generate_pb2 import GenerateRequest, Sampling, Stopping

from tests.e2e.processes import Fleet, Process, free_port, wait_until
from tests.e2e.test_metrics import served

pytestmark = pytest.mark.slow

REQUESTS = "radixgate_gateway_requests_total"
# All on one of two processes: 1 in half a million.
CONNECTIONS = 20


class Shared:
    """A gateway of two processes with a worker."""

    def __init__(self, fleet: Fleet, model: Path) -> None:
        port, self.metrics_port = free_port(), free_pair()
        self.address = f"127.0.0.1:{port}"
        options = ("--processes", "2", "--metrics-port", str(self.metrics_port))
        self.parent: Process = fleet.gateway(port, None, *options).start()
        self.worker = fleet.worker("a", model, [port]).start()

    def pids(self) -> dict[int, int]:
        """Of the processes that serve, by number."""
        served = re.findall(r"process (\d) \(pid (\d+)\) serves", self.parent.output())
        return {int(number): int(pid) for number, pid in served}

    def requests(self) -> list[float]:
        """How many each has answered; raises URLError while one does not serve."""
        return [served(self.metrics_port + at).get(REQUESTS, 0) for at in range(2)]


def free_pair() -> int:
    """The first of two ports in a row that nothing listened on a moment ago."""
    while True:
        first = free_port()
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", first + 1))
            return first


@asynccontextmanager
async def connections(address: str) -> AsyncIterator[list[GatewayStub]]:
    """Clients with a connection each; both processes know the model."""
    async with AsyncExitStack() as stack:
        stubs = []
        for _ in range(CONNECTIONS):
            # NOTE: else all channels of this process to one address share one connection.
            alone = [("grpc.use_local_subchannel_pool", 1)]
            channel = grpc.aio.insecure_channel(address, options=alone)
            stubs.append(GatewayStub(await stack.enter_async_context(channel)))
        async with asyncio.timeout(20):
            for stub in stubs:
                while not (await stub.ListModels(ListModelsRequest())).models:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        yield stubs


def generation(max_tokens: int) -> GenerateRequest:
    return GenerateRequest(
        packed=pack_tokens(range(8, 40)),
        sampling=Sampling(temperature=0),
        stopping=Stopping(max_tokens=max_tokens, ignore_eos=True),
    )


async def tokens(stub: GatewayStub, max_tokens: int = 4) -> int:
    stream = stub.Generate(generation(max_tokens), timeout=60)
    return sum([len(response.tokens.ids) async for response in stream])


async def test_two_processes_share_a_port_and_one_that_is_killed_is_replaced(
    fleet: Fleet, tiny_llama: Path
) -> None:
    gateway = await asyncio.to_thread(Shared, fleet, tiny_llama)
    before = gateway.pids()
    async with connections(gateway.address) as stubs:
        assert await asyncio.gather(*map(tokens, stubs)) == [4] * CONNECTIONS
        requests = gateway.requests()
        assert all(requests), requests
        assert sum(requests) >= 2 * CONNECTIONS

    psutil.Process(before[1]).kill()
    killed = f"process 1 (pid {before[1]}) was killed by SIGKILL; another starts in 0.5 s"
    await asyncio.to_thread(wait_until, lambda: killed in gateway.parent.output(), 10, killed)
    async with connections(gateway.address) as stubs:
        assert await asyncio.gather(*map(tokens, stubs)) == [4] * CONNECTIONS
    await asyncio.to_thread(wait_until, lambda: gateway.pids() != before, 60, "it is replaced")
    assert gateway.pids()[2] == before[2]
    async with connections(gateway.address) as stubs:
        assert await asyncio.gather(*map(tokens, stubs)) == [4] * CONNECTIONS
    assert gateway.requests()[0] > 0, "nobody reached the new one"


async def test_sigterm_of_the_parent_lets_all_finish(fleet: Fleet, tiny_llama: Path) -> None:
    gateway = await asyncio.to_thread(Shared, fleet, tiny_llama)
    family = psutil.Process(gateway.parent.pid).children(recursive=True)
    assert len(family) == 3, "two processes and Redis"
    async with connections(gateway.address) as stubs:
        running = [stub.Generate(generation(100), timeout=90) for stub in stubs]
        streams = [aiter(stream) for stream in running]
        for stream in streams:
            await anext(stream)
        assert all(gateway.requests()), "one has nothing to finish"
        gateway.parent.signal(signal.SIGTERM)
        counts = [
            sum([len(response.tokens.ids) async for response in stream]) for stream in streams
        ]
        assert counts == [100] * CONNECTIONS
    assert await asyncio.to_thread(gateway.parent.wait, 40) == 0
    assert not [process for process in family if process.is_running()]
    with pytest.raises(URLError):
        gateway.requests()


async def test_a_second_signal_or_the_parents_death_ends_all_at_once(
    fleet: Fleet, tiny_llama: Path
) -> None:
    gateway = await asyncio.to_thread(Shared, fleet, tiny_llama)
    family = psutil.Process(gateway.parent.pid).children(recursive=True)
    async with connections(gateway.address) as stubs:
        streams = [aiter(stub.Generate(generation(2000), timeout=90)) for stub in stubs]
        for stream in streams:
            await anext(stream)
        gateway.parent.signal(signal.SIGTERM)
        await asyncio.to_thread(
            wait_until, lambda: "gateway is stopping" in gateway.parent.output(), 10, "it stops"
        )
        gateway.parent.signal(signal.SIGINT)
        assert await asyncio.to_thread(gateway.parent.wait, 20) == 130
    assert not [process for process in family if process.is_running()]

    await asyncio.to_thread(gateway.parent.start)
    family = psutil.Process(gateway.parent.pid).children(recursive=True)
    assert len(family) == 3
    gateway.parent.kill()
    _, alive = await asyncio.to_thread(psutil.wait_procs, family, 20)
    assert not alive
