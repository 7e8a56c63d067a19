"""A small Kubernetes cluster on this machine, for tests of the chart: no Docker, no root.

    async with Cluster(tmp_path, claims={"models": path}) as cluster:
        await cluster.helm("install", CHART, "x", values, wait="watcher", timeout=60)
        address = cluster.service("x-radixgate-gateway", 50051)

An API server (`server`), the controllers (`deployments`, `sets`, `endpoints`, `autoscale`, `keda`),
a kubelet whose pods are processes (`kubelet`) and a service proxy (`proxy`) share one `store`; what
each is faithful to, and what it leaves out, stands at its top. All end with the block.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar

import helm_python

from gateway.summary.redis import server_program
from tests.kube import deployments, endpoints, kinds, sets
from tests.kube.autoscale import AutoscalerLoop, Source
from tests.kube.clock import Clock
from tests.kube.containers import Host
from tests.kube.keda import KedaLoop
from tests.kube.kubelet import Kubelet
from tests.kube.network import Network
from tests.kube.objects import follow, is_terminating, status_of
from tests.kube.proxy import ServiceProxy
from tests.kube.selectors import labels_match
from tests.kube.server import ApiServer
from tests.kube.store import Obj, Store

T = TypeVar("T")


class Cluster:
    """A cluster with one namespace in use, `default`.

    Args:
        directory: for logs, volumes and what else it writes.
        claims: local folders of PersistentVolumeClaims; others begin empty.
        images: local folders of image volumes, by reference.
        environment: of all processes, whatever their containers say.
        speed: of `clock`, by which autoscaling lives.

    Attributes: `sources` of External metrics beside those of ScaledObjects.
    """

    def __init__(
        self,
        directory: Path,
        *,
        claims: dict[str, Path] | None = None,
        images: dict[str, Path] | None = None,
        environment: dict[str, str] | None = None,
        speed: float = 1.0,
    ) -> None:
        self.directory = directory
        self.clock = Clock(speed)
        self.network = Network()
        self.store = Store(cluster_ips=self.network.services)
        self.server = ApiServer(self.store, logs=lambda pod: self.log(pod["metadata"]["name"]))
        program = [sys.executable, "-m", "cli.main"]
        entrypoints = dict.fromkeys(("radixgate-gateway", "radixgate-worker"), program)
        entrypoints["valkey"] = [server_program()]
        folders = claims or {}, images or {}
        host = Host(directory, entrypoints, *folders, environment or {}, self.server.kubeconfig)
        self.kubelet = Kubelet(self.store, self.network, host)
        self.proxy = ServiceProxy(self.store)
        keda = KedaLoop(self.store, self.clock)
        self.sources: list[Source] = [keda.read]
        self._loops: list[Coroutine[Any, Any, None]] = [
            follow(self.store, _reconcile),
            self.kubelet.run(),
            self.proxy.run(),
            AutoscalerLoop(self.store, self.clock, self.sources).run(),
            keda.run(),
        ]
        self._group = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        await self.server.start()
        (self.directory / "kubeconfig").write_text(self.server.kubeconfig())
        await self._group.__aenter__()
        self._tasks = [self._group.create_task(loop) for loop in self._loops]
        return self

    async def __aexit__(self, *error: Any) -> None:
        if error[0]:
            print(self.report())
        for task in self._tasks:
            task.cancel()
        try:
            await self._group.__aexit__(*error)
        finally:
            await self.server.stop()
            self.network.close()

    async def helm(self, action: str, *arguments: Any, **options: Any) -> Any:
        """A method of `helm_python.Config`, as in `helm("upgrade", chart, name, values)`."""
        config = self.directory / "kubeconfig"

        def call() -> Any:
            with helm_python.Config(kubeconfig_path=config, namespace="default") as helm:
                return getattr(helm, action)(*arguments, **options)

        return await asyncio.to_thread(call)

    async def kubectl(self, *arguments: str) -> str:
        """What kubectl prints; AssertionError if it fails."""
        options = [f"--kubeconfig={self.directory / 'kubeconfig'}"]
        options += [f"--cache-dir={self.directory / 'kubectl'}"]
        process = await asyncio.create_subprocess_exec(
            *(Path(sys.executable).parent / "kubectl", *options, *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, f"kubectl {' '.join(arguments)}: {output.decode()}"
        return output.decode()

    def service(self, name: str, port: int) -> str:
        """The address of a Service's port, which is there as long as an endpoint is ready."""
        found = self.store.get(kinds.SERVICE, "default", name)
        assert found, f"no Service {name}"
        return f"{found['spec']['clusterIP']}:{port}"

    def pods(self, selector: str = "") -> list[Obj]:
        """The pods with these labels that are not about to go."""
        found = self.store.list(kinds.POD, "default", selector)
        return [pod for pod in found if not is_terminating(pod)]

    def processes(self, selector: str = "") -> dict[str, dict[str, int]]:
        """The processes of pods with these labels, by pod and container; of leaving ones too."""
        matches = labels_match(selector)
        return {
            pod.obj["metadata"]["name"]: pod.processes
            for pod in self.kubelet.pods.values()
            if pod.processes and matches(pod.obj["metadata"].get("labels", {}))
        }

    def log(self, pod: str) -> str:
        """What the containers of a pod have printed; also of one that is gone."""
        logs = sorted((self.directory / "logs").glob(f"{pod}-*.log"))
        return "\n".join(log.read_text(errors="replace") for log in logs)

    def report(self) -> str:
        """What a failed test shows: the pods with their states, and the end of every log."""
        pods = {pod["metadata"]["name"]: pod for pod in self.store.list(kinds.POD)}
        states = [f"{name}: {status_of(pod)}" for name, pod in pods.items()]
        logs = (self.directory / "logs").glob("*.log")
        tails = [f"== {log.name}\n{log.read_text(errors='replace')[-3000:]}" for log in logs]
        return "\n".join(states + tails)

    async def until(self, check: Callable[[], T | None], seconds: float, what: str) -> T:
        """The first truthy result of `check`; AssertionError after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                while not (result := check()):  # noqa: ASYNC110 - a test may poll
                    await asyncio.sleep(0.05)
                return result
        except TimeoutError:
            raise AssertionError(f"not within {seconds} s: {what}") from None


def _reconcile(store: Store) -> None:
    for controller in (deployments, sets, endpoints):
        controller.reconcile(store)
