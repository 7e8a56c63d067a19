"""A kubelet for processes: pods of the store become processes on addresses of their own.

Faithful: init containers in order, restart policies with the documented delays, startup, readiness
and liveness probes, SIGTERM, grace and SIGKILL, readiness while a pod ends, phases, conditions and
container statuses, the token of the service account (as KUBECONFIG). Nothing outlives the test.
Not here: scheduling, resources, images, security contexts, NetworkPolicies (processes share one
network), lifecycle hooks, sidecars, ephemeral containers, logs and exec through the API.
"""

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import STDOUT, Process
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from radixgate.leash import leashed

from tests.kube import kinds
from tests.kube.containers import Host, MissingError, Translation
from tests.kube.loops import follow
from tests.kube.network import Network
from tests.kube.objects import is_terminating, set_condition, timestamp, write_status
from tests.kube.probes import verdicts
from tests.kube.store import Obj, Store, key_of

NODE: Final = "node-0"
FIRST_DELAY, LAST_DELAY = 10.0, 300.0
RETRY_SECONDS: Final = 0.1


class Kubelet:
    """Runs every pod of a store.

    Args:
        kubeconfig: the text of a kubeconfig for a user.
    """

    def __init__(
        self, store: Store, network: Network, host: Host, kubeconfig: Callable[[str], str]
    ) -> None:
        self.store, self.network, self.host, self.kubeconfig = store, network, host, kubeconfig
        self.pods: dict[str, Pod] = {}

    async def run(self) -> None:
        """Follow the pods until cancelled; then kill what runs."""
        async with asyncio.TaskGroup() as tasks:

            def update(store: Store) -> None:
                there = {obj["metadata"]["uid"]: obj for obj in store.list(kinds.POD)}
                for uid in there.keys() - self.pods.keys():
                    self.pods[uid] = Pod(self, there[uid])
                    task = tasks.create_task(self.pods[uid].run())
                    task.add_done_callback(lambda _, uid=uid: self.pods.pop(uid))  # type: ignore[misc]
                for uid, pod in self.pods.items():
                    if uid not in there:
                        pod.delete(0)
                    elif is_terminating(there[uid]):
                        pod.delete(there[uid]["metadata"]["deletionGracePeriodSeconds"])

            await follow(self.store, [kinds.POD], update)


class Pod:
    """One pod, from its binding to a node until it is gone."""

    def __init__(self, kubelet: Kubelet, obj: Obj) -> None:
        self.kubelet, self.obj, self.spec = kubelet, obj, obj["spec"]
        self.initialized = False
        self.stopping = asyncio.Event()
        self._grace = 0.0
        self.address = kubelet.network.pod_address()
        self.translation = Translation(kubelet.store, obj, self.address, kubelet.host)
        self.containers = [Container(self, spec) for spec in self.spec["containers"]]
        self.inits = [Container(self, spec) for spec in self.spec.get("initContainers") or []]

    async def run(self) -> None:
        """Work until done or deleted, then end what runs and remove the pod."""
        store, key = self.kubelet.store, key_of(self.obj)
        bound = store.get(kinds.POD, *key)
        if bound is None or bound["metadata"]["uid"] != self.obj["metadata"]["uid"]:
            return
        bound["spec"]["nodeName"] = NODE
        self.obj = store.replace(kinds.POD, bound)
        work = asyncio.create_task(self._work())
        stopping = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            await stopping
            await asyncio.gather(*(one.stop(self._grace) for one in self._all))
        finally:
            for task in (work, stopping):
                task.cancel()
            await asyncio.wait({work, stopping})
        now = store.get(kinds.POD, *key)
        if now is not None and now["metadata"]["uid"] == self.obj["metadata"]["uid"]:
            store.delete(kinds.POD, *key, grace=0)

    def delete(self, grace: float) -> None:
        """Begin to end it; again with less grace, sooner."""
        if self.stopping.is_set() and grace < self._grace:
            self.kill()
        self._grace = grace
        self.stopping.set()

    def kill(self) -> None:
        """SIGKILL to all its processes."""
        for container in self._all:
            container.signal(signal.SIGKILL)

    @property
    def _all(self) -> "list[Container]":
        return [*self.inits, *self.containers]

    async def _work(self) -> None:
        await self._mount()
        policy = self.spec["restartPolicy"]
        for container in self.inits:
            # An init container is not run again for having succeeded.
            once = "OnFailure" if policy == "Always" else policy
            if not await container.run(once):
                break
        else:
            self.initialized = True
            await asyncio.gather(*(container.run(policy) for container in self.containers))
        self.publish()

    async def _mount(self) -> None:
        """The volumes, and the token of the service account, as soon as they are there."""
        while True:
            try:
                self.translation.mount()
                break
            except MissingError:
                await asyncio.sleep(RETRY_SECONDS)
        namespace, name = self.obj["metadata"]["namespace"], self.spec["serviceAccountName"]
        account = self.kubelet.store.get(kinds.SERVICE_ACCOUNT, namespace, name) or {}
        mounted = account.get("automountServiceAccountToken", True)
        self.environment = {"HOME": str(self.translation.folder)}
        self.translation.folder.mkdir(parents=True, exist_ok=True)
        if self.spec.get("automountServiceAccountToken", mounted):
            path = self.translation.folder / "kubeconfig"
            path.write_text(self.kubelet.kubeconfig(f"system:serviceaccount:{namespace}:{name}"))
            self.environment["KUBECONFIG"] = str(path)
        self.publish()

    def publish(self) -> None:
        """Write the status as it is now."""
        obj = self.kubelet.store.get(kinds.POD, *key_of(self.obj))
        if obj is None or obj["metadata"]["uid"] != self.obj["metadata"]["uid"]:
            return
        before = obj.get("status") or {}
        obj["status"] = before | {
            "phase": self._phase(),
            "hostIP": "127.0.0.1",
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "startTime": before.get("startTime") or timestamp(),
            "containerStatuses": [container.status() for container in self.containers],
        }
        if self.inits:
            obj["status"]["initContainerStatuses"] = [one.status() for one in self.inits]
        ended = obj["status"]["phase"] in {"Succeeded", "Failed"}
        ready = not ended and all(container.ready for container in self.containers)
        reason = "PodCompleted" if ended else "" if ready else "ContainersNotReady"
        set_condition(obj, "PodScheduled", True)
        set_condition(obj, "Initialized", self.initialized)
        set_condition(obj, "ContainersReady", ready, reason)
        set_condition(obj, "Ready", ready, reason)
        write_status(self.kubelet.store, kinds.POD, obj)

    def _phase(self) -> str:
        codes = [container.final for container in self.containers]
        if any(container.final for container in self.inits):
            return "Failed"
        if None not in codes:
            return "Failed" if any(codes) else "Succeeded"
        started = all("waiting" not in one.state or one.last for one in self.containers)
        return "Running" if started else "Pending"


class Container:
    """One container: its lives, one process each.

    Attributes: `final`, the exit code of the last life, None until then.
    """

    def __init__(self, pod: Pod, spec: dict[str, Any]) -> None:
        self._pod, self._spec, self.name = pod, spec, spec["name"]
        self.restarts, self.ready, self.started = 0, False, False
        self.state: dict[str, Any] = {"waiting": {"reason": "PodInitializing"}}
        self.last: dict[str, Any] = {}
        self.process: Process | None = None
        self.final: int | None = None
        self._environment: dict[str, str] = {}

    @property
    def log(self) -> Path:
        """Where all its lives write."""
        name = self._pod.obj["metadata"]["name"]
        return self._pod.kubelet.host.directory / "logs" / f"{name}-{self.name}.log"

    async def run(self, policy: str) -> bool:
        """Live, again and again if the restart policy says so; whether it succeeded."""
        delay = 0.0
        while True:
            code = await self._life()
            if (
                self._pod.stopping.is_set()
                or policy == "Never"
                or (policy, code) == ("OnFailure", 0)
            ):
                self.final = code
                self._pod.publish()
                return code == 0
            self.last, self.state = self.state, {"waiting": {"reason": "CrashLoopBackOff"}}
            self._pod.publish()
            await asyncio.sleep(delay)
            delay = min(max(FIRST_DELAY, 2 * delay), LAST_DELAY)
            self.restarts += 1

    async def stop(self, grace: float) -> None:
        """SIGTERM, and SIGKILL after `grace` seconds."""
        if (process := self.process) is None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await process.wait()
        if process.returncode is None:
            self.signal(signal.SIGKILL)
        await process.wait()

    def signal(self, number: signal.Signals) -> None:
        """To all its processes."""
        if self.process is not None:
            _kill_group(self.process, number)

    def status(self) -> dict[str, Any]:
        """Its entry in the pod's status."""
        return {
            "name": self.name,
            "image": self._spec["image"],
            "imageID": self._spec["image"],
            "ready": self.ready,
            "started": self.started,
            "restartCount": self.restarts,
            "state": self.state,
            "lastState": self.last,
        }

    async def _life(self) -> int:
        command = await self._command()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = await self._start(command, log)
        since = timestamp()
        self.state = {"running": {"startedAt": since}}
        self._pod.publish()
        probing = asyncio.create_task(self._probe())
        try:
            code = await self.process.wait()
        finally:
            self.signal(signal.SIGKILL)
            probing.cancel()
            await asyncio.wait({probing})
            await self.process.wait()
        if not probing.cancelled():
            probing.result()
        self.process, self.ready, self.started = None, False, False
        code = code if code >= 0 else 128 - code
        reason = "Error" if code else "Completed"
        times = {"startedAt": since, "finishedAt": timestamp()}
        self.state = {"terminated": {"exitCode": code, "reason": reason, **times}}
        return code

    async def _command(self) -> list[str]:
        while True:
            try:
                command, environment = self._pod.translation.command(self._spec)
            except MissingError as why:
                problem = {"reason": "CreateContainerConfigError", "message": str(why)}
                self.state = {"waiting": problem}
                self._pod.publish()
                await asyncio.sleep(RETRY_SECONDS)
                continue
            base = {name: os.environ[name] for name in ("PYTHONPATH", "LANG") if name in os.environ}
            base["PATH"] = f"{self._pod.kubelet.host.directory / 'bin'}:{os.environ['PATH']}"
            base |= {"OMP_NUM_THREADS": "1", "POD_ADDRESS": self._pod.address}
            forced = self._pod.kubelet.host.environment
            self._environment = base | self._pod.environment | environment | forced
            return command

    async def _start(self, command: list[str], log: Any) -> Process:
        path = self._environment["PATH"]
        program = shutil.which(command[0], path=path) or command[0]
        return await asyncio.create_subprocess_exec(
            *leashed(program, *command[1:]),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=STDOUT,
            env=self._environment,
            cwd=self._pod.translation.folder,
            start_new_session=True,
        )

    async def _run(self, command: list[str]) -> int:
        """A command in the container, as an exec probe."""
        text = self._pod.translation.text(self._spec)
        process = await self._start([text(word) for word in command], asyncio.subprocess.DEVNULL)
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                _kill_group(process, signal.SIGKILL)

    async def _probe(self) -> None:
        """The startup probe first, then both others at once."""
        async for verdict in self._verdicts("startupProbe"):
            if verdict is False:
                await self.stop(self._pod.spec["terminationGracePeriodSeconds"])
            if verdict:
                break
        self.started = True
        await asyncio.gather(self._follow_readiness(), self._follow_liveness())

    async def _follow_readiness(self) -> None:
        async for verdict in self._verdicts("readinessProbe"):
            if verdict not in {None, self.ready}:
                self.ready = bool(verdict)
                self._pod.publish()

    async def _follow_liveness(self) -> None:
        async for verdict in self._verdicts("livenessProbe"):
            if verdict is False and not self._pod.stopping.is_set():
                await self.stop(self._pod.spec["terminationGracePeriodSeconds"])

    def _verdicts(self, name: str) -> Any:
        if name not in self._spec:
            return _succeeds()
        declared = self._spec.get("ports") or []
        ports = {port["name"]: port["containerPort"] for port in declared if "name" in port}
        return verdicts(self._spec[name], self._pod.address, ports, self._run)


def _kill_group(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


async def _succeeds() -> Any:
    yield True
