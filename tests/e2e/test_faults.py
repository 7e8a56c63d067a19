"""Parts that die under load: no request hangs, and what is believed is true again soon after."""

import asyncio
import json
import signal
from pathlib import Path

import pytest
from radixgate.client import Client
from radixgate.errors import InvalidRequest

from tests.e2e.load import Load, prompts
from tests.e2e.processes import Fleet, free_port, wait_until
from tests.e2e.truth import all_agree, held, mirrored, summaries

pytestmark = pytest.mark.slow

LEASE_SECONDS = 2.0
LEASE = ("--lease-ms", "2000")
REPAIR_SECONDS = 10.0


@pytest.fixture
def vocab(tiny_llama: Path) -> int:
    size: int = json.loads((tiny_llama / "config.json").read_text())["vocab_size"]
    return size


async def test_a_killed_worker_is_forgotten_and_costs_no_request(
    fleet: Fleet, tiny_llama: Path, vocab: int
) -> None:
    redis_port, port = free_port(), free_port()
    fleet.redis(redis_port).start()
    fleet.gateway(port, redis_port, *LEASE).start()
    workers = [fleet.worker(name, tiny_llama, [port]) for name in ("a", "b")]
    for worker in workers:
        worker.start()
    address = f"127.0.0.1:{port}"
    model = tiny_llama.name

    load = Load([address], prompts(vocab))
    await load.count(30)
    lost = [key for key in summaries(redis_port, model) if key[0] == "a"]
    assert lost, "worker a holds nothing; the test would show nothing"
    workers[0].kill()
    await load.count(30)
    # A second for the sweep that finds what has expired.
    await asyncio.to_thread(
        wait_until,
        lambda: [key[0] for key in mirrored(address)] == ["b"],
        LEASE_SECONDS + 1,
        "the gateway forgets worker a",
    )
    assert {worker for worker, _ in summaries(redis_port, model)} == {"b"}

    await asyncio.to_thread(workers[0].start)
    await asyncio.to_thread(
        wait_until,
        lambda: "a" in {key[0] for key in mirrored(address)},
        REPAIR_SECONDS,
        "the gateway knows worker a again",
    )
    await load.count(30)
    counts = await load.stop()
    assert lost[0] not in summaries(redis_port, model)
    assert lost[0] not in mirrored(address)
    assert set(counts) == {"OK"}


async def test_a_hung_worker_holds_up_no_request_for_longer_than_its_lease(
    fleet: Fleet, tiny_llama: Path, vocab: int
) -> None:
    redis_port, ports = free_port(), [free_port(), free_port()]
    fleet.redis(redis_port).start()
    for port in ports:
        fleet.gateway(port, redis_port, *LEASE).start()
    workers = [fleet.worker(name, tiny_llama, ports) for name in ("a", "b")]
    for worker in workers:
        worker.start()
    addresses = [f"127.0.0.1:{port}" for port in ports]
    for address in addresses:
        await asyncio.to_thread(
            wait_until, lambda at=address: len(mirrored(at)) == 2, 10, f"{address} knows both"
        )

    load = Load(addresses, prompts(vocab))
    await load.count(30)
    workers[0].signal(signal.SIGSTOP)
    try:
        # Some of it after the lease and the probe, on the other worker, while this one still hangs.
        async with asyncio.timeout(10):
            await load.count(60)
    finally:
        workers[0].signal(signal.SIGCONT)
    await load.count(30)
    counts = await load.stop()
    assert set(counts) == {"OK"}
    await asyncio.to_thread(all_agree, addresses, redis_port, tiny_llama.name)


async def test_a_redis_that_comes_back_empty_holds_the_truth_again(
    fleet: Fleet, tiny_llama: Path, vocab: int
) -> None:
    redis_port, port = free_port(), free_port()
    redis = fleet.redis(redis_port).start()
    fleet.gateway(port, redis_port).start()
    for name in ("a", "b"):
        # Little enough memory that the load evicts all the time.
        fleet.worker(name, tiny_llama, [port], "--kv-memory", "600KiB").start()
    address = f"127.0.0.1:{port}"

    load = Load([address], prompts(vocab, families=12))
    await load.count(50)
    redis.kill()
    await load.count(50)
    redis.start()
    await load.count(50)
    counts = await load.stop()
    assert set(counts) == {"OK"}
    await asyncio.to_thread(all_agree, [address], redis_port, tiny_llama.name)


async def test_two_gateways_agree_on_summaries_and_on_choices(
    fleet: Fleet, tiny_llama: Path, vocab: int
) -> None:
    redis_port, ports = free_port(), [free_port(), free_port()]
    fleet.redis(redis_port).start()
    for port in ports:
        fleet.gateway(port, redis_port).start()
    # Each worker reports to another gateway.
    fleet.worker("a", tiny_llama, [ports[0]]).start()
    fleet.worker("b", tiny_llama, [ports[1]]).start()
    addresses = [f"127.0.0.1:{port}" for port in ports]
    for address in addresses:
        await asyncio.to_thread(
            wait_until, lambda at=address: len(mirrored(at)) == 2, 10, f"{address} knows both"
        )

    load = Load(addresses, prompts(vocab, families=8))
    await load.count(60)
    assert set(await load.stop()) == {"OK"}
    await asyncio.to_thread(all_agree, addresses, redis_port, tiny_llama.name)
    for prompt in prompts(vocab, families=8)[:8]:
        # NOTE: a load report may come between the two.
        await asyncio.to_thread(
            wait_until, lambda asked=prompt: _choose_alike(addresses, asked), 10, "one choice"
        )


def _choose_alike(addresses: list[str], prompt: list[int]) -> bool:
    chosen = []
    for address in addresses:
        with Client(address) as client:
            best = client.explain(prompt).candidates[0]
            assert best.matched_tokens >= 256, "it is not cached; the test would show nothing"
            chosen.append((best.worker, best.matched_tokens))
    return len(set(chosen)) == 1


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
async def test_the_workers_of_a_gateway_that_dies_or_hangs_turn_to_the_other(
    fleet: Fleet, tiny_llama: Path, vocab: int, fault: signal.Signals
) -> None:
    redis_port, ports = free_port(), [free_port(), free_port()]
    fleet.redis(redis_port).start()
    gateways = [fleet.gateway(port, redis_port, *LEASE).start() for port in ports]
    for name in ("a", "b"):
        fleet.worker(name, tiny_llama, ports).start()
    survivor = f"127.0.0.1:{ports[1]}"
    await asyncio.to_thread(
        wait_until, lambda: len(mirrored(survivor)) == 2, 10, "the other gateway knows both"
    )

    load = Load([survivor], prompts(vocab))
    await load.count(30)
    before = set(mirrored(survivor))
    gateways[0].signal(fault)
    known = []
    for _ in range(2 * round(LEASE_SECONDS)):
        await load.count(10)
        await asyncio.sleep(0.5)
        known.append(len(mirrored(survivor)))
    assert set(await load.stop()) == {"OK"}
    assert set(known) == {2}, "a healthy worker was taken for lost"
    await asyncio.to_thread(all_agree, [survivor], redis_port, tiny_llama.name)
    assert set(mirrored(survivor)) == before, "a worker was taken for a new one"


def test_of_two_processes_with_one_id_the_later_serves(fleet: Fleet, tiny_llama: Path) -> None:
    port = free_port()
    fleet.gateway(port, None, *LEASE).start()
    first = fleet.worker("a", tiny_llama, [port]).start()
    with Client(f"127.0.0.1:{port}") as client:
        (old,) = wait_until(client.workers, 10, "the first is known")
        second = fleet.worker("a", tiny_llama, [port], log="worker-a-again").start()
        wait_until(lambda: client.workers()[0].epoch > old.epoch, 10, "the second has its place")
        wait_until(
            lambda: "do two processes use this worker id" in first.output(), 10, "the first is told"
        )
        assert len(client.workers()) == 1
        (new,) = client.workers()
        answer = client.generate(list(range(8, 108)), max_tokens=2, timeout=30).result()
        assert len(answer.ids) > 0
        assert held(new.address), "the answer did not come from the second"
        assert not held(old.address)
        assert second.alive


def test_two_models_are_served_side_by_side(
    fleet: Fleet, tiny_llama: Path, tiny_qwen3: Path
) -> None:
    port, models = free_port(), [tiny_llama, tiny_qwen3]
    fleet.gateway(port).start()
    for model in models:
        fleet.worker("same-id", model, [port], log=f"worker-of-{model.name}").start()
    names = sorted(model.name for model in models)
    prompt = list(range(8, 208))
    with Client(f"127.0.0.1:{port}") as client:
        wait_until(lambda: len(client.workers()) == len(models), 10, "both workers are known")
        with pytest.raises(InvalidRequest, match=", ".join(names)):
            client.generate(prompt, timeout=30).result()
        answers = {
            name: client.generate(
                prompt, model=name, temperature=0, max_tokens=8, ignore_eos=True, timeout=30
            ).result()
            for name in names
        }
        for name in names:
            wait_until(
                lambda name=name: (
                    client.explain(prompt, model=name).candidates[0].matched_tokens == 192
                ),
                5,
                f"{name} holds its own prompt",
            )
    first, second = answers.values()
    assert first.ids != second.ids, "one model answered for both"
    assert first.started.cached_tokens == second.started.cached_tokens == 0
