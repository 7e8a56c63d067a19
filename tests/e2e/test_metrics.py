"""The metrics that the documentation names are those that the processes serve."""

import re
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from radixgate.client import Client

from tests.e2e.processes import Fleet, free_port, wait_until

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


def served(port: int) -> dict[str, float]:
    """Sums of the samples of every metric of ours, by the name that the documentation uses."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
        families = text_string_to_metric_families(response.read().decode())
        return {
            family.name + ("_total" if family.type == "counter" else ""): sum(
                sample.value for sample in family.samples if not sample.name.endswith("_created")
            )
            for family in families
            if family.name.startswith("radixgate_") and not family.name.endswith("_created")
        }


def test_the_documented_metrics_are_the_metrics(fleet: Fleet, tiny_llama: Path) -> None:
    port, gateway_metrics, worker_metrics = free_port(), free_port(), free_port()
    fleet.gateway(port, None, "--metrics-port", str(gateway_metrics)).start()
    fleet.worker("a", tiny_llama, [port], "--metrics-port", str(worker_metrics)).start()
    with Client(f"127.0.0.1:{port}") as client:
        wait_until(client.workers, 10, "the worker is known")
        prompt = list(range(8, 208))
        for _ in range(2):
            client.generate(prompt, temperature=0, max_tokens=4, timeout=30).result()
            wait_until(
                lambda: client.explain(prompt).candidates[0].matched_tokens == 192, 5, "reported"
            )
    gateway, worker = served(gateway_metrics), served(worker_metrics)
    documented = set(re.findall(r"^\| `(radixgate_\w+)`", DOCS.read_text(), re.MULTILINE))
    assert documented == {*gateway, *worker}
    assert gateway["radixgate_gateway_prompt_tokens_total"] == 400
    assert gateway["radixgate_gateway_predicted_cached_tokens_total"] == 192
    assert gateway["radixgate_gateway_worker_prompt_tokens_total"] == 400
    assert gateway["radixgate_gateway_worker_kept_ratio"] == 1
    assert gateway["radixgate_gateway_mirror_boundaries"] == 3
    assert gateway["radixgate_gateway_redis_up"] == 1
    assert worker["radixgate_worker_prompt_tokens_total"] == 400
    assert worker["radixgate_worker_requests_total"] == 2
