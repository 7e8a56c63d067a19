"""Real gateways over real Redis: what traffic does to what KEDA is told."""

import asyncio
from collections.abc import Iterable

import pytest

from tests.gateway.harness import Client, live, serving, until, working
from tests.scale.doubles import CachingWorker, Keda, prompt
from tests.summary.valkey import Valkey

pytestmark = pytest.mark.slow

WINDOW = 60.0


async def serve(client: Client, numbers: Iterable[int]) -> None:
    for number in numbers:
        await client.generate(prompt(number))


async def test_evictions_ask_for_workers_and_silence_for_none(valkey: Valkey) -> None:
    a, b = CachingWorker("a"), CachingWorker("b")
    async with (
        serving(valkey, demand_window=WINDOW) as one,
        working(one, a, b),
        Keda(one.address) as desired,
        Keda(one.address, metric="cache_pressure") as pressure,
    ):
        assert await desired.value() == 2
        await serve(one, [*range(20)] * 3)

        async def asks_for_more() -> bool:
            return await desired.value() > 2 and await pressure.value() > 2.2

        await until(asks_for_more)
        # NOTE: twice the size at once is the most; 20 prompts need 5 workers.
        assert await desired.value() == 4

        async def is_calm() -> bool:
            return await desired.value() == 2 == await pressure.value()

        await until(is_calm, WINDOW)


async def test_prompts_that_never_come_again_ask_for_nothing(valkey: Valkey) -> None:
    a, b = CachingWorker("a"), CachingWorker("b")
    async with (
        serving(valkey, demand_window=WINDOW) as one,
        working(one, a, b),
        Keda(one.address) as desired,
        Keda(one.address, metric="cache_pressure") as pressure,
        Keda(one.address, metric="miss_rate") as missed,
    ):
        await serve(one, range(60))
        # NOTE: while nothing is known it is the target, and that for each of two workers.
        await until(lambda: _is(missed.value(), 2.0))
        assert await pressure.value() == 0
        assert await desired.value() == 2


async def test_gateways_say_the_same_even_one_that_comes_later(valkey: Valkey) -> None:
    a, b = CachingWorker("a"), CachingWorker("b")
    async with serving(valkey, demand_window=WINDOW) as one, working(one, a, b):
        async with serving(valkey, demand_window=WINDOW) as two:
            await until(lambda: live(two, a, b))
            for number in [*range(20)] * 3:
                await (one if number % 2 else two).generate(prompt(number))
            async with Keda(one.address) as first, Keda(two.address) as second:
                await until(lambda: _is(first.value(), 4.0))
                await until(lambda: _is(second.value(), 4.0))
            known = [await _all(client.address) for client in (one, two)]
            assert known[0] == pytest.approx(known[1])
        # NOTE: what the one that has left had counted goes on counting.
        async with serving(valkey, demand_window=WINDOW) as three:
            await until(lambda: live(three, a, b))
            await until(lambda: _same(one.address, three.address))
            assert (await _all(three.address))["desired_workers"] == 4


async def test_without_redis_a_gateway_goes_on_with_what_it_knows(valkey: Valkey) -> None:
    a, b = CachingWorker("a"), CachingWorker("b")
    async with (
        serving(valkey, demand_window=WINDOW) as one,
        working(one, a, b),
        Keda(one.address) as desired,
        Keda(one.address, scaleToZero="true") as to_zero,
    ):
        await serve(one, [*range(20)] * 2)
        await until(lambda: _is(desired.value(), 4.0))
        valkey.kill()
        await asyncio.sleep(3.0)
        assert await desired.value() == 4
        await serve(one, [*range(20)])
        assert await desired.value() == 4
        # NOTE: others may have requests, so silence here is no silence.
        await until(lambda: _is(desired.value(), 2.0), WINDOW)
        assert await to_zero.active()
        assert await to_zero.value() == 2


async def _is(value, wanted) -> bool:  # type: ignore[no-untyped-def]
    return (await value) == wanted


async def _all(address: str) -> dict[str, float]:
    values = {}
    for metric in ("cache_pressure", "miss_rate", "kv_utilization", "desired_workers"):
        async with Keda(address, metric=metric) as keda:
            values[metric] = await keda.value()
    return values


async def _same(one: str, other: str) -> bool:
    return await _all(one) == pytest.approx(await _all(other))
