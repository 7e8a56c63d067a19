"""A kubelet for processes: pods of the store become processes on addresses of their own.

Faithful: init containers in order, restarts with the documented delays (unless the policy is
Never), startup, readiness and liveness probes, SIGTERM, grace and SIGKILL, readiness while a pod
ends, phases, conditions and container statuses, the token of the service account (as KUBECONFIG).
Nothing outlives the test. Not here: scheduling, resources, images, security contexts,
NetworkPolicies (processes share one network), lifecycle hooks, sidecars, the policy OnFailure.
"""

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL, STDOUT, Process
from contextlib import suppress
from typing import Any, Final

from radixgate.leash import leashed

from tests.kube import kinds
from tests.kube.containers import Host, MissingError, Translation
from tests.kube.network import Network
from tests.kube.objects import follow, is_terminating, set_condition, status_of, write_status
from tests.kube.probes import verdicts
from tests.kube.store import Obj, Store, key_of, timestamp

NODE: Final = "node-0"
FIRST_DELAY, LAST_DELAY = 10.0, 300.0
RETRY_SECONDS: Final = 0.1


class Kubelet:
    """Runs every pod of a store."""

    def __init__(self, store: Store, network: Network, host: Host) -> None:
        self.store, self.network, self.host = store, network, host
        self.pods: dict[str, Pod] = {}

    async def run(self) -> None:
        """Follow the pods until cancelled; then kill what runs."""
        async with asyncio.TaskGroup() as tasks:

            def update(store: Store) -> None:
                there = {obj["metadata"]["uid"]: obj for obj in store.list(kinds.POD)}
                for uid in there.keys() - self.pods.keys():
                    there[uid]["spec"]["nodeName"] = NODE
                    self.pods[uid] = Pod(self, store.replace(kinds.POD, there[uid]))
                    task = tasks.create_task(self.pods[uid].run())
                    task.add_done_callback(lambda _, uid=uid: self.pods.pop(uid))  # type: ignore[misc]
                for uid, pod in self.pods.items():
                    if uid not in there:
                        pod.delete(0)
                    elif is_terminating(there[uid]):
                        pod.delete(there[uid]["metadata"]["deletionGracePeriodSeconds"])

            await follow(self.store, update)


class Pod:
    """One pod, from its binding to a node until it is gone."""

    def __init__(self, kubelet: Kubelet, obj: Obj) -> None:
        self.kubelet, self.obj, self.spec = kubelet, obj, obj["spec"]
        self.stopping = asyncio.Event()
        self.address = next(kubelet.network.pods)
        self.translation = Translation(kubelet.store, obj, self.address, kubelet.host)
        self._containers = [Container(self, spec) for spec in self.spec["containers"]]
        self._inits = [Container(self, spec) for spec in self.spec.get("initContainers", [])]
        self._grace = 0.0

    @property
    def processes(self) -> dict[str, int]:
        """What runs now, by container."""
        return {one.name: one.process.pid for one in self._containers if one.process}

    async def run(self) -> None:
        """Work until done or deleted, then end what runs and remove the pod."""
        work = asyncio.create_task(self._work())
        stopping = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            await stopping
            await asyncio.gather(
                *(one.stop(self._grace) for one in (*self._inits, *self._containers))
            )
        finally:
            for task in (work, stopping):
                task.cancel()
            await asyncio.wait({work, stopping})
        if self._present():
            self.kubelet.store.delete(kinds.POD, *key_of(self.obj), grace=0)

    def delete(self, grace: float) -> None:
        """Begin to end it; again with less grace, at once."""
        if self.stopping.is_set() and grace < self._grace:
            for container in (*self._inits, *self._containers):
                container.kill()
        self._grace = grace
        self.stopping.set()

    def publish(self) -> None:
        """Write the status as it is now."""
        if (obj := self._present()) is None:
            return
        phase = self._phase()
        obj["status"] = {
            "phase": phase,
            "podIP": self.address,
            "conditions": status_of(obj).get("conditions", []),
            "containerStatuses": [container.status() for container in self._containers],
        }
        ended = phase in {"Succeeded", "Failed"}
        ready = not ended and all(container.ready for container in self._containers)
        reason = "PodCompleted" if ended else "" if ready else "ContainersNotReady"
        set_condition(obj, "Ready", ready, reason)
        write_status(self.kubelet.store, kinds.POD, obj)

    def _present(self) -> Obj | None:
        found = self.kubelet.store.get(kinds.POD, *key_of(self.obj))
        same = found and found["metadata"]["uid"] == self.obj["metadata"]["uid"]
        return found if same else None

    async def _work(self) -> None:
        self.translation.mount()
        self.publish()
        always = self.spec["restartPolicy"] == "Always"
        for container in self._inits:
            if not await container.run(on_failure=always, on_success=False):
                break
        else:
            lives = (one.run(on_failure=always, on_success=always) for one in self._containers)
            await asyncio.gather(*lives)
        self.publish()

    def _phase(self) -> str:
        codes = [container.final for container in self._containers]
        if any(container.final for container in self._inits):
            return "Failed"
        if None not in codes:
            return "Failed" if any(codes) else "Succeeded"
        started = all("waiting" not in one.state or one.last for one in self._containers)
        return "Running" if started else "Pending"


class Container:
    """One container: its lives, one process each.

    Attributes: `state` now, and that of the `last` life, as in the status of a pod; `final`, the
    exit code of the last life, None until then.
    """

    def __init__(self, pod: Pod, spec: dict[str, Any]) -> None:
        self._pod, self._spec, self.name = pod, spec, spec["name"]
        self.state: dict[str, Any] = {"waiting": {"reason": "PodInitializing"}}
        self.last: dict[str, Any] = {}
        self.process: Process | None = None
        self.final: int | None = None
        self.ready, self._started, self._restarts = False, False, 0
        self._environment: dict[str, str] = {}

    async def run(self, *, on_failure: bool, on_success: bool) -> bool:
        """Live, and again after failure or success if so; whether the last life succeeded."""
        delay = 0.0
        while True:
            code = await self._life()
            if self._pod.stopping.is_set() or not (on_failure if code else on_success):
                self.final = code
                self._pod.publish()
                return code == 0
            self.last, self.state = self.state, {"waiting": {"reason": "CrashLoopBackOff"}}
            self._pod.publish()
            await asyncio.sleep(delay)
            delay = min(max(FIRST_DELAY, 2 * delay), LAST_DELAY)
            self._restarts += 1

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
            self.kill()
        await process.wait()

    def kill(self) -> None:
        """SIGKILL to all its processes."""
        if self.process is not None:
            _kill_group(self.process)

    def status(self) -> dict[str, Any]:
        """Its entry in the pod's status."""
        return {
            "name": self.name,
            "image": self._spec["image"],
            "ready": self.ready,
            "started": self._started,
            "restartCount": self._restarts,
            "state": self.state,
            "lastState": self.last,
        }

    async def _life(self) -> int:
        pod = self._pod
        command, self._environment = await self._command()
        logs = pod.kubelet.host.directory / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        with (logs / f"{pod.obj['metadata']['name']}-{self.name}.log").open("ab") as log:
            self.process = await self._start(command, log)
        since = timestamp()
        self.state = {"running": {"startedAt": since}}
        self._pod.publish()
        probing = asyncio.create_task(self._probe())
        try:
            code = await self.process.wait()
        finally:
            self.kill()
            probing.cancel()
            await asyncio.wait({probing})
            await self.process.wait()
        if not probing.cancelled():
            probing.result()
        self.process, self.ready, self._started = None, False, False
        code = code if code >= 0 else 128 - code
        times = {"startedAt": since, "finishedAt": timestamp()}
        reason = "Error" if code else "Completed"
        self.state = {"terminated": {"exitCode": code, "reason": reason, **times}}
        return code

    async def _command(self) -> tuple[list[str], dict[str, str]]:
        """What to run, and with what, as soon as all that it names is there."""
        while True:
            try:
                return self._pod.translation.command(self._spec)
            except MissingError as why:
                reason = {"reason": "CreateContainerConfigError", "message": str(why)}
                self.state = {"waiting": reason}
                self._pod.publish()
                await asyncio.sleep(RETRY_SECONDS)

    async def _start(self, command: list[str], log: Any) -> Process:
        program = shutil.which(command[0]) or command[0]
        return await asyncio.create_subprocess_exec(
            *leashed(program, *command[1:]),
            stdin=DEVNULL,
            stdout=log,
            stderr=STDOUT,
            env=self._environment,
            cwd=self._pod.translation.folder,
            start_new_session=True,
        )

    async def _exec(self, command: list[str]) -> int:
        """A command in the container, as an exec probe."""
        process = await self._start(command, DEVNULL)
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                _kill_group(process)

    async def _probe(self) -> None:
        """The startup probe first, then both others at once."""
        async for verdict in self._verdicts("startupProbe"):
            if verdict is False:
                await self._fail()
            if verdict:
                break
        self._started = True
        await asyncio.gather(self._follow_readiness(), self._follow_liveness())

    async def _follow_readiness(self) -> None:
        async for verdict in self._verdicts("readinessProbe"):
            if verdict not in {None, self.ready}:
                self.ready = bool(verdict)
                self._pod.publish()

    async def _follow_liveness(self) -> None:
        async for verdict in self._verdicts("livenessProbe"):
            if verdict is False and not self._pod.stopping.is_set():
                await self._fail()

    async def _fail(self) -> None:
        await self.stop(self._pod.spec["terminationGracePeriodSeconds"])

    def _verdicts(self, name: str) -> Any:
        return verdicts(self._spec.get(name), self._pod.address, self._exec)


def _kill_group(process: Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
