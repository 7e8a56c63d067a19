"""Many siblings at once, through four gateways, to workers that really compute.

`tests/e2e/test_siblings.py` has the same with doubles, where nothing depends on the machine.
"""

import asyncio
import random
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from radixgate.client import AsyncClient

from tests.e2e.processes import Fleet, free_port, wait_until
from tests.e2e.truth import mirrored, true_summaries
from tests.models import VOCAB_SIZE, make_tiny

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

GATEWAYS, WORKERS, SIBLINGS, PREFIX = 4, 3, 64, 4096


async def test_at_most_two_workers_compute_what_siblings_share(
    fleet: Fleet, tmp_path: Path
) -> None:
    model = make_tiny(tmp_path / "tiny-llama-8k", "llama", max_context=8192)
    redis_port, ports = free_port(), [free_port() for _ in range(GATEWAYS)]
    fleet.redis(redis_port).start()
    parts = [fleet.gateway(port, redis_port) for port in ports]
    parts += [
        # They report to different gateways.
        fleet.worker(f"w{at}", model, [ports[at]], "--kv-memory", "32MiB")
        for at in range(WORKERS)
    ]
    for part in parts:
        part.launch()
    for part in parts:
        part.wait_ready()
    addresses = [f"127.0.0.1:{port}" for port in ports]
    for address in addresses:
        wait_until(lambda at=address: len(mirrored(at)) == WORKERS, 20, f"{address} knows all")

    rng = random.Random(3)
    prefix = [rng.randrange(8, VOCAB_SIZE) for _ in range(PREFIX)]
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(AsyncClient(each)) for each in addresses]
        answers = await asyncio.gather(
            *(
                clients[at % GATEWAYS]
                .generate(
                    prefix + [rng.randrange(8, VOCAB_SIZE) for _ in range(20)],
                    max_tokens=2,
                    ignore_eos=True,
                    timeout=120,
                )
                .result()
                for at in range(SIBLINGS)
            )
        )
    computed = [key for key, names in true_summaries(addresses[0]).items() if names]
    assert 1 <= len(computed) <= 2, computed
    # The siblings of a worker wait for the one that computes.
    assert sum(answer.started.cached_tokens < PREFIX for answer in answers) <= 2
