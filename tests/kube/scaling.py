"""Show 2 in one place: the chart in a cluster of processes, a load that outgrows it, what happens.

The pool's KV memory is what is scarce: each worker holds four beginnings, and the load
rises to more of them than the first two workers hold together, then falls to few. Control loops run
`SPEED` times as fast as the wall's clock, and the gateways' demand window is shorter by as much, so
that the ten minutes that Kubernetes and the chart wait are over in two.
"""

import asyncio
import json
import random
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families
from radixgate.home import radixgate_home

from tests.helm.chart import CHART
from tests.kube.cluster import Cluster
from tests.kube.load import Asked, Leg, RisingLoad
from tests.kube.objects import holds
from tests.kube.sets import DELETION_COST

RELEASE: Final = "show"
MODEL: Final = "model"
SPEED: Final = 5.0
WINDOW_SECONDS: Final = 600 / SPEED

PREFIX_TOKENS: Final = 448
OWN_TOKENS: Final = 32
BLOCK_TOKENS: Final = 16
WORKER_BLOCKS: Final = 160
"""Of KV in each worker: four beginnings, and room for what runs."""

FEW, MANY = 4, 24
BETWEEN_SECONDS: Final = 16.0
CALM: Final = [Leg(60, FEW)]
RISE: Final = [Leg(90, MANY), Leg(210, MANY)]
FALL: Final = [Leg(10, FEW - 1), Leg(590, FEW - 1)]
SETTLED_SECONDS: Final = 600 / SPEED
"""Ten minutes of the control loops, the last ones, in which nothing may change."""

SETTLED: Final = [Leg(SETTLED_SECONDS + 60, FEW - 1)]

LEGS: Final = {"calm": CALM, "rise": RISE, "fall": FALL, "settled": SETTLED}


def ends(name: str) -> float:
    """When these legs are over, in seconds since the load began."""
    until = [*LEGS][: [*LEGS].index(name) + 1]
    return float(sum(leg.seconds for each in until for leg in LEGS[each]))


@dataclass(frozen=True, slots=True)
class Sample:
    """The pool at one moment.

    Attributes: `at`, seconds since the load began; pods that stay, and those of them that are
    `ready`; what the gateway reports as `radixgate_gateway_scale_*`; the `costs` of deleting pods,
    by name.
    """

    at: float
    families: int
    pods: int
    ready: int
    signals: dict[str, float]
    costs: dict[str, int]


@dataclass(slots=True)
class Record:
    """All that was seen. `left`: pods that were taken away, with the costs of all before that."""

    asked: list[Asked] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    left: list[tuple[str, dict[str, int]]] = field(default_factory=list)

    def sizes(self) -> list[int]:
        """Pods that stay, each time that their number had changed."""
        pods = [sample.pods for sample in self.samples]
        return [now for now, before in zip(pods, [0, *pods], strict=False) if now != before]

    def between(self, begin: float, end: float) -> list[Asked]:
        """What was asked in these seconds."""
        return [each for each in self.asked if begin <= each.at < end]


def values(model: Path) -> dict[str, Any]:
    """The chart's, for a pool of at least two workers."""
    kv_bytes = WORKER_BLOCKS * BLOCK_TOKENS * _token_bytes(_config(model))
    small = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
    return {
        "gateway": {"replicas": 2, "demandWindowSeconds": WINDOW_SECONDS, "noticeSeconds": 2},
        "workers": [
            {
                "name": "pool",
                "model": {"name": MODEL, "pvc": {"claimName": "models", "path": model.name}},
                "resources": small,
                "kv": {"memory": str(kv_bytes)},
                "autoscaling": {"mode": "keda", "minReplicas": 2, "maxReplicas": 6},
            }
        ],
    }


def families(vocab: int, count: int = MANY) -> list[list[int]]:
    """The beginnings."""
    rng = random.Random(5)
    return [[rng.randrange(8, vocab) for _ in range(PREFIX_TOKENS)] for _ in range(count)]


async def play(directory: Path, model: Path) -> Record:
    """Install, raise the load, let it fall, and take the release away again."""
    vocab = _config(model)["vocab_size"]
    record = Record()
    environment = {"NUMBA_CACHE_DIR": str(radixgate_home() / "kernels")}
    async with Cluster(
        directory, claims={"models": model.parent}, environment=environment, speed=SPEED
    ) as cluster:
        await cluster.helm("install", CHART, RELEASE, values(model), wait="watcher", timeout=300)
        address = cluster.service(f"{RELEASE}-radixgate-gateway", 50051)
        load = RisingLoad(address, families(vocab), OWN_TOKENS, BETWEEN_SECONDS)
        watching = asyncio.create_task(_watch(cluster, load, record))
        try:
            await load.play([leg for legs in LEGS.values() for leg in legs])
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
        record.asked = sorted(load.asked, key=lambda each: each.at)
        await cluster.helm("uninstall", RELEASE, wait="watcher")
    return record


def _config(model: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((model / "config.json").read_text())
    return config


def _token_bytes(config: dict[str, Any]) -> int:
    """Of a token's KV in float32."""
    head_size = config["hidden_size"] // config["num_attention_heads"]
    return 4 * 2 * int(config["num_hidden_layers"] * config["num_key_value_heads"] * head_size)


async def _watch(cluster: Cluster, load: RisingLoad, record: Record) -> None:
    selector = "app.kubernetes.io/component=worker"
    metrics = cluster.service(f"{RELEASE}-radixgate-gateway", 9090)
    before: dict[str, int] = {}
    while True:
        pods = cluster.pods(selector)
        costs = {
            pod["metadata"]["name"]: int(
                pod["metadata"].get("annotations", {}).get(DELETION_COST, 0)
            )
            for pod in pods
        }
        record.left += [(name, before) for name in before if name not in costs]
        before = costs
        signals: dict[str, float] = {}
        with suppress(OSError):
            signals = await asyncio.to_thread(_signals, metrics)
        ready = sum(holds(pod, "Ready") for pod in pods)
        record.samples.append(Sample(load.now, load.active, len(pods), ready, signals, costs))
        await asyncio.sleep(1.0)


def _signals(address: str) -> dict[str, float]:
    prefix = "radixgate_gateway_scale_"
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=2) as response:
        text = response.read().decode()
    return {
        sample.name.removeprefix(prefix): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith(prefix)
    }


def p90(asked: Sequence[Asked]) -> float:
    """Of time to first token, in seconds."""
    times = sorted(each.ttft_seconds for each in asked)
    return times[int(0.9 * (len(times) - 1))]
