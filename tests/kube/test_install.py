"""Real Helm installs the chart: gateways, workers and Valkey come up as processes and stay in use.

What the chart says of networks, images, users and resources has no effect on processes: here nobody
enforces its NetworkPolicies. `tests/helm` checks that it is said.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from radixgate.client import AsyncClient
from radixgate.errors import Unavailable
from radixgate.home import radixgate_home
from radixgate.stream import AsyncStream

from tests.helm.chart import CHART
from tests.kube import kinds
from tests.kube.cluster import Cluster
from tests.kube.store import key_of
from tests.models import VOCAB_SIZE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TOKENS = 100
PAUSE_SECONDS = 0.2  # of each client, so that rollouts have some of the processor
INSTALL_SECONDS = 240  # on a machine that has never compiled the worker's kernels

GATEWAYS = "app.kubernetes.io/component=gateway"
WORKERS = "app.kubernetes.io/component=worker"


def values(model: Path, **changes: Any) -> dict[str, Any]:
    """Two gateways, Valkey, and two workers with a model of a claim, as small as they can be."""
    small = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    return {
        "gateway": {"noticeSeconds": 2, "graceSeconds": 20, "queueLimit": changes.get("queue", 64)},
        "workerDefaults": {"maxRunning": changes.get("running", 8), "graceSeconds": 20},
        "workers": [
            {
                "name": "tiny",
                "model": {"name": "tiny", "pvc": {"claimName": "models", "path": model.name}},
                "resources": small,
                "kv": {"memory": "64MiB"},
            }
        ],
    }


def prompt(seed: int, length: int = 300) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(8, VOCAB_SIZE) for _ in range(length)]


def ask(client: AsyncClient, tokens: list[int]) -> AsyncStream:
    return client.generate(tokens, max_tokens=TOKENS, temperature=0, ignore_eos=True, timeout=60)


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await check():  # noqa: ASYNC110 - a test may poll
            await asyncio.sleep(0.05)


async def knows(client: AsyncClient, workers: set[str]) -> bool:
    return {info.worker for info in await client.workers(timeout=10)} == workers


async def holds(client: AsyncClient, tokens: list[int], matched: int) -> bool:
    explained = await client.explain(tokens, timeout=10)
    return explained.candidates[0].matched_tokens >= matched


class Load:
    """Streams in a closed loop, each compared with what it was when nothing happened.

    Attributes: `refused`, how many a leaving gateway sent away before they had begun. Those are
    tried again, as clients shall; any other error ends the test.
    """

    def __init__(self, address: str, expected: dict[int, tuple[int, ...]]) -> None:
        self.done, self.refused = 0, 0
        self._address, self._expected = address, expected

    async def more(self, count: int) -> None:
        """Wait until `count` streams more have ended well."""
        target = self.done + count
        async with asyncio.timeout(60):
            while self.done < target:  # noqa: ASYNC110 - a test may poll
                await asyncio.sleep(0.02)

    @asynccontextmanager
    async def running(self, clients: int = 3) -> AsyncIterator["Load"]:
        async with asyncio.TaskGroup() as tasks:
            loops = [tasks.create_task(self._loop(number)) for number in range(clients)]
            yield self
            for loop in loops:
                loop.cancel()

    async def _loop(self, number: int) -> None:
        rng = random.Random(number)
        async with AsyncClient(self._address) as client:
            while True:
                seed = rng.choice(list(self._expected))
                stream = ask(client, prompt(seed))
                try:
                    result = await stream.result()
                except Unavailable:
                    if stream.started:
                        raise
                    self.refused += 1
                    await asyncio.sleep(0.05)
                    continue
                assert result.ids == self._expected[seed], "a stream is not what it was"
                self.done += 1
                await asyncio.sleep(PAUSE_SECONDS)


def names(cluster: Cluster, selector: str) -> set[str]:
    return {pod["metadata"]["name"] for pod in cluster.pods(selector)}


def everything(cluster: Cluster) -> set[tuple[str, ...]]:
    """All objects of the cluster."""
    return {(kind.kind, *key_of(obj)) for kind in kinds.KINDS for obj in cluster.store.list(kind)}


def listening(cluster: Cluster) -> list[str]:
    """Where anything listens on the cluster's addresses."""
    return [
        f"{one.laddr.ip}:{one.laddr.port}"
        for one in psutil.net_connections("tcp")
        if one.status == psutil.CONN_LISTEN and one.laddr.ip.startswith(cluster.network.prefix)
    ]


async def test_a_release_from_install_to_uninstall(tmp_path: Path, tiny_llama: Path) -> None:
    # Compiled once for all pods, and all tests.
    kernels = {"NUMBA_CACHE_DIR": str(radixgate_home() / "kernels")}
    claims = {"models": tiny_llama.parent}
    async with Cluster(tmp_path, claims=claims, environment=kernels) as cluster:
        before = everything(cluster)
        options = {"wait": "watcher", "timeout": INSTALL_SECONDS}
        await cluster.helm("install", CHART, "x", values(tiny_llama), **options)
        assert len(names(cluster, GATEWAYS)) == len(names(cluster, WORKERS)) == 2
        address = cluster.service("x-radixgate-gateway", 50051)

        async with AsyncClient(address) as client:
            # Either gateway may have to hear first of what the other was told.
            await eventually(lambda: knows(client, names(cluster, WORKERS)))
            cold = await ask(client, prompt(0)).result()
            await eventually(lambda: holds(client, prompt(0), 256))
            warm = await ask(client, prompt(0)).result()
            assert cold.started.cached_tokens == 0
            assert warm.started.cached_tokens >= 256
            assert warm.ids == cold.ids
            expected = {seed: (await ask(client, prompt(seed)).result()).ids for seed in range(8)}

        async with Load(address, expected).running() as load:
            await load.more(10)
            gateways, workers = names(cluster, GATEWAYS), names(cluster, WORKERS)
            await cluster.helm("upgrade", CHART, "x", values(tiny_llama, running=9), **options)
            assert names(cluster, GATEWAYS) == gateways
            assert not names(cluster, WORKERS) & workers
            await load.more(10)
            assert load.refused == 0

            workers = names(cluster, WORKERS)
            change = values(tiny_llama, running=9, queue=65)
            await cluster.helm("upgrade", CHART, "x", change, **options)
            assert not names(cluster, GATEWAYS) & gateways
            assert names(cluster, WORKERS) == workers
            await load.more(10)

            gateways = names(cluster, GATEWAYS)
            await cluster.helm("rollback", "x", **options)
            assert not names(cluster, GATEWAYS) & gateways
            assert (await cluster.helm("get_values", "x"))["gateway"]["queueLimit"] == 64
            await load.more(10)

            await cluster.helm("test", "x", timeout=60)

            await cluster.until(lambda: len(cluster.processes(GATEWAYS)) == 2, 40, "old ones end")
            refused = load.refused
            deployment = "deployment/x-radixgate-worker-tiny"
            for replicas in (3, 2):
                await cluster.kubectl("scale", deployment, f"--replicas={replicas}")
                await cluster.kubectl("rollout", "status", deployment)
                await cluster.until(
                    lambda n=replicas: len(cluster.processes(WORKERS)) == n, 30, "scaled"
                )
                await load.more(10)
            assert load.refused == refused

        await cluster.helm("uninstall", "x", wait="watcher", timeout=60)
        await cluster.until(lambda: not cluster.processes(), 40, "all processes have ended")
        await cluster.until(lambda: everything(cluster) == before, 10, "no object is left")
        assert listening(cluster) == []
