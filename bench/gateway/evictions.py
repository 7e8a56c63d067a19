"""How soon the mirrors of two gateways have what a worker evicts."""

import asyncio
import time
from contextlib import suppress
from itertools import repeat
from typing import Any

from bench.gateway.load import GENERATE, closed_loop, first_token
from bench.gateway.numbers import spread
from bench.gateway.parts import Fleet, Part, fleet

EVICT_SECONDS = 0.03


async def evictions(count: int, request: bytes, clients: int) -> dict[str, Any]:
    """Milliseconds from each of `count` evictions to each gateway's mirror.

    Meanwhile `clients` ask the first gateway for `request` again and again.
    """
    async with fleet(2, "--evict", str(EVICT_SECONDS)) as running:
        ask = first_token(running.gateways[0].channel, GENERATE)
        asking = asyncio.create_task(closed_loop(ask, repeat(request), clients))
        try:
            return await _delays(running, count)
        finally:
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking


async def _delays(running: Fleet, count: int) -> dict[str, Any]:
    now = time.monotonic_ns()
    evicted: list[tuple[int, int]] = []
    while len(evicted) < count:
        seq, at = await running.worker.line()
        if at > now:
            evicted.append((seq, at))
    last, _ = evicted[-1]
    taken = [await _until(gateway, last) for gateway in running.gateways]
    seconds = [[(each[seq] - at) / 1e9 for seq, at in evicted] for each in taken]
    return {
        "the gateway that the worker reports to": spread(seconds[0]),
        "the other": spread(seconds[1]),
        "both": spread([*map(max, *seconds)]),
    }


async def _until(gateway: Part, last: int) -> dict[int, int]:
    """When its mirror took each Delta, in nanoseconds, up to the one with the seq `last`."""
    taken: dict[int, int] = {}
    while last not in taken:
        seq, at = await gateway.line()
        taken[seq] = at
    return taken
