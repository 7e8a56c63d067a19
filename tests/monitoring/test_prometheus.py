"""Against a real Prometheus that scrapes a real gateway and a real worker: every query works.

Nothing is asked for that nobody serves, no query is wrong, and what should have data has some.
"""

import json
import math
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from radixgate.client import Client
from radixgate.v1.generate_pb2 import Scope

from tests.e2e.processes import Fleet, Process, free_port, wait_until
from tests.e2e.test_metrics import served
from tests.monitoring.promtool import DOCS, RULES, alerts, needs_prometheus
from tests.monitoring.queries import (
    FOREIGN,
    KUBERNETES,
    asked,
    expressions,
    metrics,
    selectors,
)

pytestmark = [pytest.mark.slow, needs_prometheus]

SCRAPES = 4
WINDOW = "5m"
"""For rates: all of the traffic."""


class Prometheus(NamedTuple):
    """Args: its `url`; the time `at` which all is asked, the end of the traffic; the `names` of all
    metrics that gateway and worker serve, as the documentation has them.
    """

    url: str
    at: float
    names: set[str]

    def get(self, path: str, **parameters: Any) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=10) as response:
            return json.load(response)["data"]

    def values(self, query: str) -> list[float]:
        """What `query` finds; an error of Prometheus is raised."""
        found = self.get("query", query=query, time=self.at)["result"]
        values = [float(each["value"][1]) for each in found]
        return [value for value in values if not math.isnan(value)]


@pytest.fixture(scope="module")
def prometheus(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """After some traffic."""
    fleet = Fleet(tmp_path_factory.mktemp("monitored"))
    try:
        gateway, gateway_metrics, worker_metrics = free_port(), free_port(), free_port()
        fleet.gateway(gateway, None, "--metrics-port", str(gateway_metrics)).start()
        fleet.worker("a", tiny_llama, [gateway], "--metrics-port", str(worker_metrics)).start()
        jobs = {"gateway": gateway_metrics, "worker": worker_metrics}
        with Client(f"127.0.0.1:{gateway}") as client:
            wait_until(client.workers, 10, "the worker is known")
            # Of what is made by its first use, a rate needs to have seen the beginning.
            ask(client, 0)
            url = serve(fleet, jobs)
            found, turn = Prometheus(url, time.time(), set()), 0
            while found.values("min(sum_over_time(up[5m]))") < [SCRAPES]:
                ask(client, turn := turn + 1)
                found = found._replace(at=time.time())
        yield found._replace(names={name for port in jobs.values() for name in served(port)})
    finally:
        fleet.stop()


def serve(fleet: Fleet, jobs: dict[str, int]) -> str:
    """A Prometheus that looks at `jobs`, by port, every other second; its URL."""
    port = free_port()
    config = {
        "global": {"scrape_interval": "2s", "evaluation_interval": "2s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {
                "job_name": job,
                "static_configs": [
                    {"targets": [f"127.0.0.1:{target}"], "labels": {"namespace": "test"}}
                ],
            }
            for job, target in jobs.items()
        ],
    }
    path = fleet.directory / "prometheus.yaml"
    path.write_text(yaml.safe_dump(config))
    command = [
        "prometheus",
        f"--config.file={path}",
        f"--storage.tsdb.path={fleet.directory / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    part = Process(
        "prometheus", command, "Server is ready to receive web requests", fleet.directory
    )
    fleet.parts.append(part)
    part.start()
    return f"http://127.0.0.1:{port}"


def ask(client: Client, turn: int) -> None:
    """A bit of everything that clients do."""
    prompt = [8 + at % 400 for at in range(200)] + [8 + turn % 400]
    client.generate(prompt, temperature=0, max_tokens=4, timeout=30).result()
    client.chat(
        [{"role": "user", "content": f"What is {turn}?"}], max_tokens=2, timeout=30
    ).result()
    client.generate(prompt, scope=Scope(tenant="acme"), max_tokens=2, timeout=30).result()
    routed = client.route(prompt, max_tokens=2)
    client.finish(routed.reservation, cached_tokens=routed.matched_tokens)


@pytest.mark.parametrize("query", asked(WINDOW).values(), ids=asked(WINDOW).keys())
def test_every_query_of_the_dashboard_has_data(prometheus: Prometheus, query: str) -> None:
    values = prometheus.values(query)
    assert bool(values) != bool(metrics(query) & KUBERNETES)


@pytest.mark.parametrize("name", expressions())
def test_every_rule_works_and_what_it_looks_at_is_there(prometheus: Prometheus, name: str) -> None:
    expression = expressions()[name]
    values = prometheus.values(expression)
    assert bool(values) == (name not in alerts()), "a healthy fleet gives no reason for alerts"
    for selector in selectors(expression):
        there = bool(prometheus.values(selector))
        assert there != bool(metrics(selector) & (KUBERNETES | FOREIGN)), selector


def test_prometheus_finds_nothing_wrong_with_the_rules(prometheus: Prometheus) -> None:
    groups = prometheus.get("rules")["groups"]
    states = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
    assert states == dict.fromkeys(expressions(), "ok")


def test_no_text_names_a_metric_that_nobody_serves(prometheus: Prometheus) -> None:
    texts = [path.read_text() for path in (DOCS / "alerts.md", DOCS / "metrics.md", RULES)]
    named = metrics(" ".join([*texts, *asked(WINDOW).values()]))
    recorded = {name for name in named if name.startswith("model:")}
    assert recorded <= expressions().keys()
    parts = {re.sub("_(bucket|count|sum)$", "", name) for name in named - recorded}
    assert parts - prometheus.names == FOREIGN
