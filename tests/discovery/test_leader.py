"""One gateway leads, and another when it is gone, with a real Valkey and real processes."""

import asyncio
import signal
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from redis.asyncio import Redis

from gateway.scale.leader import LOCK_SECONDS, Leader, leader_key
from gateway.summary.redis import connect
from tests.discovery.cluster import NAMESPACE, SELECTOR, SliceCluster
from tests.e2e.conftest import fleet  # noqa: F401
from tests.e2e.processes import Fleet, free_port
from tests.gateway.conftest import valkey  # noqa: F401
from tests.gateway.harness import until
from tests.summary.valkey import Valkey, eventually

pytestmark = pytest.mark.slow

SECONDS = 0.6
LONG = 600.0


@asynccontextmanager
async def running(
    url: str,
    key: str = "k",
    seconds: float = SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[Leader]:
    async with connect(url) as redis:
        leader = Leader(redis, key, clock, seconds)
        task = asyncio.create_task(leader.run())
        yield leader
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await leader.close()
        assert not leader.leads


async def test_one_leads_and_the_next_when_it_leaves(valkey: Valkey) -> None:  # noqa: F811
    async with AsyncExitStack() as stack:
        first_stack = await stack.enter_async_context(AsyncExitStack())
        first = await first_stack.enter_async_context(running(valkey.url, seconds=LONG))
        await eventually(lambda: first.leads, "the first to lead")
        second = await stack.enter_async_context(running(valkey.url))
        other = await stack.enter_async_context(running(valkey.url, "another key"))
        await eventually(lambda: other.leads, "who wants something else to lead as well")
        for _ in range(20):
            await asyncio.sleep(SECONDS / 10)
            assert first.leads
            assert not second.leads
        await first_stack.aclose()
        await eventually(lambda: second.leads, "the second to lead")


async def test_nobody_leads_while_redis_is_away(valkey: Valkey) -> None:  # noqa: F811
    stopped = time.monotonic()
    async with (
        running(valkey.url, clock=lambda: stopped) as one,
        running(valkey.url, clock=lambda: stopped) as two,
    ):
        await eventually(lambda: one.leads or two.leads, "one to lead")
        valkey.kill()
        await eventually(lambda: not (one.leads or two.leads), "none to lead, locks not expired")
        valkey.start()
        await eventually(lambda: one.leads or two.leads, "one to lead again")
        assert not (one.leads and two.leads)


async def test_who_lost_the_lock_knows_at_the_next_renewal(valkey: Valkey) -> None:  # noqa: F811
    async with running(valkey.url) as leader, Redis.from_url(valkey.url) as redis:
        await eventually(lambda: leader.leads, "it to lead")
        await redis.set("k", "a stranger")
        await eventually(lambda: not leader.leads, "it to know")
    async with Redis.from_url(valkey.url) as redis:
        assert await redis.get("k") == b"a stranger", "it gives up nobody's lock but its own"


async def test_who_was_stopped_for_long_does_not_lead(valkey: Valkey) -> None:  # noqa: F811
    skipped = 0.0
    async with running(valkey.url, clock=lambda: time.monotonic() + skipped) as leader:
        await eventually(lambda: leader.leads, "it to lead")
        skipped = SECONDS
        assert not leader.leads, "its lock may have expired"


async def test_the_other_gateway_leads_after_a_kill(
    cluster: SliceCluster,
    fleet: Fleet,  # noqa: F811
) -> None:
    redis_port, ports = free_port(), (free_port(), free_port())
    fleet.redis(redis_port).start()
    options = ("--discover", SELECTOR, "--deletion-costs")
    gateways = [fleet.gateway(port, redis_port, *options) for port in ports]
    for gateway in gateways:
        gateway.launch()
    for gateway in gateways:
        await asyncio.to_thread(gateway.wait_ready)
    key = leader_key(NAMESPACE, SELECTOR)

    def leading() -> set[int]:
        lines = ("this gateway leads (", "leads no more")
        return {
            at
            for at, gateway in enumerate(gateways)
            if gateway.alive and lines[0] in gateway.output() and lines[1] not in gateway.output()
        }

    async with Redis.from_url(f"redis://127.0.0.1:{redis_port}") as redis:

        async def held() -> bool:
            return bool(await redis.exists(key)) and len(leading()) == 1

        await until(held)
        (first,) = leading()
        token = await redis.get(key)
        gateways[first].signal(signal.SIGKILL)

        async def taken() -> bool:
            return await redis.get(key) not in (None, token) and leading() == {1 - first}

        await until(taken, LOCK_SECONDS + 20)


async def test_the_processes_of_one_gateway_have_one_leader(
    cluster: SliceCluster,
    fleet: Fleet,  # noqa: F811
) -> None:
    redis_port, port, metrics = free_port(), free_port(), free_port()
    fleet.redis(redis_port).start()
    options = ["--discover", SELECTOR, "--deletion-costs", "--processes", "2"]
    gateway = fleet.gateway(port, redis_port, *options, "--metrics-port", str(metrics))
    await asyncio.to_thread(gateway.start)
    await eventually(lambda: "this gateway leads (" in gateway.output(), "one to lead", 60)
    for each in (metrics, metrics + 1):
        text = await asyncio.to_thread(scraped, each)
        assert 'radixgate_gateway_discovery_relists_total{reason="start"} 1.0' in text
        assert 'radixgate_gateway_discovery_endpoints{state="ready"} 0.0' in text
        assert "radixgate_gateway_discovery_age_seconds " in text
    assert gateway.output().count("this gateway leads (") == 1


def scraped(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
        text: str = response.read().decode()
        return text
