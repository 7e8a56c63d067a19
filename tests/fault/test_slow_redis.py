"""A Redis that answers after three seconds: requests do not wait for it, and it is repaired."""

import asyncio
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.processes import Fleet, free_port
from tests.e2e.truth import all_agree
from tests.fault.fleet import LEASE, Pair, vocabulary
from tests.fault.load import SteadyLoad, mixed_questions, undisturbed
from tests.fault.proxy import SlowProxy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

LATE_SECONDS = 3.0
REQUESTS = 120


class Decisions:
    """How long the decisions of a gateway take from now on, by its metrics."""

    def __init__(self, metrics_port: int) -> None:
        self._url = f"http://127.0.0.1:{metrics_port}/metrics"
        self._before = self._read()

    def p99(self) -> float:
        """Seconds that 99 of 100 took at most."""
        counts = self._read() - self._before
        total = max(counts.values())
        assert total >= REQUESTS // 4, "too few decisions to tell"
        return min(bound for bound, count in counts.items() if count >= 0.99 * total)

    def _read(self) -> Counter[float]:
        """How many took at most so many seconds, by the bounds of the histogram."""
        with urllib.request.urlopen(self._url, timeout=10) as response:
            families = text_string_to_metric_families(response.read().decode())
        return Counter(
            {
                float(sample.labels["le"]): int(sample.value)
                for family in families
                if family.name == "radixgate_gateway_routing_seconds"
                for sample in family.samples
                if sample.name.endswith("_bucket")
            }
        )


async def test_routing_goes_on_and_repair_is_complete(fleet: Fleet, tiny_llama: Path) -> None:
    redis_port, metrics_port = free_port(), free_port()
    fleet.redis(redis_port).start()
    async with SlowProxy(redis_port).running() as proxy:
        url = f"redis://127.0.0.1:{proxy.port}"
        pair = Pair(fleet, tiny_llama, "--redis", url, *LEASE)
        pair.gateways[0].command += ["--metrics-port", str(metrics_port)]
        await asyncio.to_thread(pair.start)
        questions = mixed_questions(vocabulary(tiny_llama), REQUESTS)
        answers = await undisturbed(pair.addresses[0], questions)

        load = SteadyLoad(pair.addresses, questions, answers)
        await load.more(REQUESTS)
        proxy.late = LATE_SECONDS
        decisions = Decisions(metrics_port)
        while "Redis is away" not in pair.gateways[0].output():
            await load.more(10)
        await load.more(REQUESTS)
        longest = decisions.p99()
        proxy.late = 0.0
        await load.more(10)
        await load.end_well()
        assert load.repeated == 0
        # NOTE: how fast they are is for the benchmarks; one that waits for Redis takes all of this.
        assert longest < LATE_SECONDS / 2
        await asyncio.to_thread(all_agree, pair.addresses, redis_port, tiny_llama.name)
