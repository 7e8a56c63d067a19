"""Three times as many requests as can be served: as many are, in time, as if there were no more.

The workers are doubles of the protocol with so many slots and a fixed time for each request, so the
capacity is exact; the gateway is a real process.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Final

import pytest
from radixgate.client import AsyncClient
from radixgate.errors import RadixgateError
from radixgate.v1.gateway_pb2 import TRUST_LIVE
from radixgate.v1.generate_pb2 import GenerateRequest, GenerateResponse

from tests.e2e.processes import Fleet, free_port
from tests.gateway.doubles import ScriptedWorker, echo, make_card
from tests.gateway.harness import until

pytestmark = pytest.mark.slow

WORKERS, SLOTS, SERVICE_SECONDS = 2, 8, 1.0
CAPACITY: Final = WORKERS * SLOTS / SERVICE_SECONDS
TIMEOUT_SECONDS = 6.0
QUEUE_LIMIT = 80
WEIGHTS = {"acme": 3, "beta": 1}
PEAK_SECONDS, OVERLOAD_SECONDS = 8.0, 20.0


class Slots:
    """The script of one worker: it serves `SLOTS` requests at once, the others wait there."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(SLOTS)

    async def __call__(
        self, request: GenerateRequest, worker: ScriptedWorker
    ) -> AsyncIterator[GenerateResponse]:
        worker.load.waiting += 1
        try:
            await self._free.acquire()
        finally:
            worker.load.waiting -= 1
        worker.load.running += 1
        try:
            await asyncio.sleep(SERVICE_SECONDS)
            async for response in echo(request, worker):
                yield response
        finally:
            worker.load.running -= 1
            self._free.release()


class Tally:
    """How requests ended, and when those that were answered were, by tenant."""

    def __init__(self, client: AsyncClient) -> None:
        self.codes: Counter[str] = Counter()
        self.answered: list[tuple[float, str]] = []
        self._client = client

    async def ask(self, number: int) -> None:
        """One request, of the tenants in turn."""
        tenant = list(WEIGHTS)[number % len(WEIGHTS)]
        prompt = [5 + (number * 7 + at) % 900 for at in range(40)]
        stream = self._client.generate(prompt, tenant=tenant, timeout=TIMEOUT_SECONDS)
        try:
            await stream.result()
        except RadixgateError as error:
            self.codes[error.code.name] += 1
        else:
            self.codes["OK"] += 1
            self.answered.append((time.monotonic(), tenant))

    def between(self, start: float, end: float) -> Counter[str]:
        """How many were answered, by tenant."""
        return Counter(tenant for at, tenant in self.answered if start <= at < end)


async def saturate(tally: Tally, seconds: float) -> float:
    """Goodput, in requests a second, when there are always as many as there are places."""
    end = time.monotonic() + seconds

    async def client(number: int) -> None:
        while time.monotonic() < end:
            await tally.ask(number)

    await asyncio.gather(*(client(number) for number in range(WORKERS * (SLOTS + 1))))
    # Without the first round, in which the workers' reports arrive.
    window = seconds - 2 * SERVICE_SECONDS
    return tally.between(end - window, end).total() / window


async def flood(tally: Tally, rate: float, seconds: float) -> None:
    """Send so many requests a second, whatever becomes of them."""
    start = time.monotonic()
    async with asyncio.TaskGroup() as requests:
        for number in range(round(rate * seconds)):
            await asyncio.sleep(start + number / rate - time.monotonic())
            requests.create_task(tally.ask(number))


async def test_overload_costs_neither_goodput_nor_fairness(fleet: Fleet) -> None:
    port = free_port()
    weights = ",".join(f"{tenant}:{weight}" for tenant, weight in WEIGHTS.items())
    options = ("--queue-limit", str(QUEUE_LIMIT), "--tenant-weights", weights)
    fleet.gateway(port, None, *options).start()
    address = f"127.0.0.1:{port}"
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(AsyncClient(address))
        for at in range(WORKERS):
            worker = ScriptedWorker(f"w{at}", make_card(), Slots())
            worker.load.max_running = SLOTS
            worker.load.prefill_tokens_per_second = 100_000
            await stack.enter_async_context(worker.running(address))

        async def all_live() -> bool:
            return [info.trust for info in await client.workers()] == [TRUST_LIVE] * WORKERS

        await until(all_live)
        peak = await saturate(Tally(client), PEAK_SECONDS)

        tally = Tally(client)
        start = time.monotonic()
        flooding = asyncio.create_task(flood(tally, 3 * CAPACITY, OVERLOAD_SECONDS))
        waiting = []
        while not flooding.done():
            waiting.append((await client.models())[0].waiting)
            await asyncio.sleep(0.1)
        await flooding

    # From when the queue is full to when the last one came.
    window = (start + TIMEOUT_SECONDS, start + OVERLOAD_SECONDS)
    answered = tally.between(*window)
    goodput = answered.total() / (window[1] - window[0])
    assert tally.codes.keys() <= {"OK", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}
    assert goodput >= 0.9 * peak
    assert 0 < max(waiting) <= QUEUE_LIMIT
    accepted = tally.codes["OK"] + tally.codes["DEADLINE_EXCEEDED"]
    assert tally.codes["OK"] >= 0.99 * accepted, tally.codes
    assert answered["acme"] / answered["beta"] == pytest.approx(3, rel=0.2)
