"""Parts that leave on SIGTERM under load: no request fails, or is sent where it is refused."""

import asyncio
import json
import signal
from pathlib import Path

import pytest
from radixgate.client import AsyncClient

from tests.e2e.load import Load, prompts
from tests.e2e.processes import Fleet, Process, free_port, wait_until
from tests.e2e.truth import mirrored

pytestmark = pytest.mark.slow

TOKENS = 800
HOT = [9] * 200


@pytest.fixture
def vocab(tiny_llama: Path) -> int:
    size: int = json.loads((tiny_llama / "config.json").read_text())["vocab_size"]
    return size


async def knows(address: str, *workers: str) -> None:
    """Wait until these are all the workers that a gateway knows."""
    await asyncio.to_thread(
        wait_until,
        lambda: sorted(key[0] for key in mirrored(address)) == sorted(workers),
        10,
        f"{address} knows {workers}",
    )


async def ended(part: Process) -> int:
    """The exit code, once it has ended."""
    return await asyncio.to_thread(part.wait, 40)


async def test_a_worker_leaves_under_load_and_no_request_is_sent_to_it_any_more(
    fleet: Fleet, tiny_llama: Path, vocab: int
) -> None:
    redis_port, ports = free_port(), [free_port(), free_port()]
    fleet.redis(redis_port).start()
    gateways = [fleet.gateway(port, redis_port).start() for port in ports]
    leaving, _ = [fleet.worker(name, tiny_llama, ports).start() for name in ("a", "b")]
    addresses = [f"127.0.0.1:{port}" for port in ports]
    for address in addresses:
        await knows(address, "a", "b")

    load = Load(addresses, prompts(vocab))
    await load.count(30)
    leaving.signal(signal.SIGTERM)
    assert await ended(leaving) == 0
    for address in addresses:
        await knows(address, "b")
    await load.count(30)
    assert set(await load.stop()) == {"OK"}
    for gateway in gateways:
        assert "draining; ask another" not in gateway.output()


async def test_a_stream_that_outlasts_the_grace_of_its_worker_goes_on_at_another(
    fleet: Fleet, tiny_llama: Path
) -> None:
    port = free_port()
    fleet.gateway(port).start()
    workers = {
        name: fleet.worker(name, tiny_llama, [port], "--grace", "0.1").start()
        for name in ("a", "b")
    }
    address = f"127.0.0.1:{port}"
    await knows(address, "a", "b")
    async with AsyncClient(address) as client:
        whole = await client.generate(
            list(range(8, 108)), max_tokens=TOKENS, temperature=0, ignore_eos=True, timeout=60
        ).result()
        stream = client.generate(
            list(range(8, 108)), max_tokens=TOKENS, temperature=0, ignore_eos=True, timeout=60
        )
        ids = list((await anext(aiter(stream))).ids)
        assert stream.started
        leaving = workers[stream.started.worker]
        leaving.signal(signal.SIGTERM)
        ids += [token async for piece in stream for token in piece.ids]
        assert tuple(ids) == whole.ids
        assert stream.finished
        assert stream.finished.migrations == 1
    assert await ended(leaving) == 0
    assert "1 requests are unfinished after the grace of 0.1 s" in leaving.output()


async def test_one_of_two_gateways_leaves_and_its_streams_finish(
    fleet: Fleet, tiny_llama: Path, vocab: int
) -> None:
    redis_port, ports = free_port(), [free_port(), free_port()]
    fleet.redis(redis_port).start()
    leaving, staying = [fleet.gateway(port, redis_port).start() for port in ports]
    for name in ("a", "b"):
        # All report to the one that leaves.
        fleet.worker(name, tiny_llama, ports).start()
    first, other = [f"127.0.0.1:{port}" for port in ports]
    for address in (first, other):
        await knows(address, "a", "b")

    load = Load([other], prompts(vocab))
    await load.count(10)
    async with AsyncClient(first) as client:
        streams = [
            client.generate(prompt, max_tokens=400, temperature=0, ignore_eos=True, timeout=60)
            for prompt in prompts(vocab)[:4]
        ]
        iterators = [aiter(stream) for stream in streams]
        counts = [len((await anext(iterator)).ids) for iterator in iterators]
        leaving.signal(signal.SIGTERM)
        for iterator in iterators:
            counts[iterators.index(iterator)] += sum([len(piece.ids) async for piece in iterator])
        assert counts == [400] * 4
    assert await ended(leaving) == 0
    await load.count(30)
    assert set(await load.stop()) == {"OK"}
    await knows(other, "a", "b")
    assert staying.alive


async def test_what_is_hot_at_a_worker_that_leaves_is_cached_at_the_next(
    fleet: Fleet, tiny_llama: Path
) -> None:
    """Though it has nothing to finish, and so is gone at once."""
    port = free_port()
    gateway = fleet.gateway(port).start()
    leaving = fleet.worker("a", tiny_llama, [port]).start()
    address = f"127.0.0.1:{port}"
    await knows(address, "a")
    async with AsyncClient(address) as client:
        for _ in range(3):
            await client.generate(HOT, max_tokens=1, tenant="t").result()
        fleet.worker("b", tiny_llama, [port]).start()
        await knows(address, "a", "b")
        leaving.signal(signal.SIGTERM)
        assert await ended(leaving) == 0
        await asyncio.to_thread(
            wait_until,
            lambda: "1 computed; 192 tokens were computed elsewhere" in gateway.output(),
            10,
            "its prefix is computed elsewhere",
        )
        for tenant, cached in (("t", 192), ("u", 0)):
            stream = client.generate(HOT, max_tokens=1, tenant=tenant)
            await stream.result()
            assert stream.started
            assert (stream.started.worker, stream.started.cached_tokens) == ("b", cached)


async def test_a_worker_that_is_killed_while_it_leaves_costs_no_request(
    fleet: Fleet, tiny_llama: Path, vocab: int
) -> None:
    port = free_port()
    gateway = fleet.gateway(port).start()
    leaving, _ = [fleet.worker(name, tiny_llama, [port]).start() for name in ("a", "b")]
    address = f"127.0.0.1:{port}"
    await knows(address, "a", "b")
    load = Load([address], prompts(vocab))
    await load.count(30)
    leaving.signal(signal.SIGTERM)
    await asyncio.sleep(0.02)
    await asyncio.to_thread(leaving.kill)
    await knows(address, "b")
    await load.count(30)
    assert set(await load.stop()) == {"OK"}
    assert "Traceback" not in gateway.output()
