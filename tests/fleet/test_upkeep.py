"""A worker that dies without a word is forgotten within its lease, with a real Valkey."""

import asyncio
import time

import pytest

from gateway.fleet.channels import Channels
from gateway.fleet.fleet import Fleet
from gateway.fleet.upkeep import keep_up
from tests.summary import values
from tests.summary.conftest import valkey  # noqa: F401
from tests.summary.gateway import gateway_half, worker_half
from tests.summary.valkey import Valkey, eventually

pytestmark = pytest.mark.slow

MODEL = "upkeep"
LEASE = 0.4


async def test_a_silent_worker_is_forgotten_and_comes_back_whole(valkey: Valkey) -> None:  # noqa: F811
    fleet, channels = Fleet(LEASE, time.monotonic), Channels()
    hello = values.hello("a", 1, model=MODEL)
    held = frozenset({1, 2, 3})
    async with gateway_half(valkey.url, lease_ms=int(LEASE * 1_000), observers=[fleet]) as gateway:
        upkeep = asyncio.create_task(keep_up(fleet, gateway.pools, channels))
        async with worker_half(gateway.address, hello, loads=False) as worker:
            await worker.hold(held)
            await eventually(lambda: gateway.held(MODEL, "a") == held, "the worker to be known")

            await eventually(lambda: fleet.get(MODEL, "a") is None, "its lease to pass")
            assert gateway.held(MODEL, "a") is None

            await worker.send_load()
            await eventually(lambda: gateway.held(MODEL, "a") == held, "the worker to be back")
            assert fleet.get(MODEL, "a") is not None
        upkeep.cancel()
        await asyncio.gather(upkeep, return_exceptions=True)
    await channels.close()
