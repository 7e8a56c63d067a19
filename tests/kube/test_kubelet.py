"""The kubelet, its probes and the Service proxy, with small processes."""

import asyncio
import base64
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kube import kinds, probes
from tests.kube.cluster import Cluster
from tests.kube.containers import Host, Translation
from tests.kube.objects import holds, status_of
from tests.kube.proxy import backends
from tests.kube.store import Obj, Store

pytestmark = pytest.mark.slow

ECHO = """
import asyncio, os, sys
async def serve(reader, writer):
    while line := await reader.readline():
        writer.write(f"{sys.argv[2]} {line.decode()}".encode())
async def main():
    server = await asyncio.start_server(serve, sys.argv[1], 7000)
    print("serves", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def container(*command: str, **fields: Any) -> Obj:
    return {"name": "c", "image": "none", "command": list(command), **fields}


def shell(script: str, **fields: Any) -> Obj:
    return container("sh", "-c", script, **fields)


def pod(name: str, *containers: Obj, **spec: Any) -> Obj:
    metadata = {"name": name, "labels": {"app": "echo"}, "annotations": {"a": "b"}}
    return {"metadata": metadata, "spec": {"containers": list(containers), **spec}}


def of(cluster: Cluster, name: str) -> Obj:
    return cluster.store.get(kinds.POD, "default", name) or {}


async def reaches(cluster: Cluster, name: str, phase: str) -> Obj:
    await cluster.until(
        lambda: status_of(of(cluster, name)).get("phase") == phase, 20, f"{name} is {phase}"
    )
    return of(cluster, name)


async def test_a_pod_that_runs_to_its_end(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.store.create(kinds.POD, pod("well", shell("exit 0"), restartPolicy="Never"))
        cluster.store.create(kinds.POD, pod("ill", shell("exit 7"), restartPolicy="Never"))
        unprepared = pod("unprepared", shell("exit 0"), restartPolicy="Never")
        unprepared["spec"]["initContainers"] = [shell("echo first; exit 1") | {"name": "i"}]
        cluster.store.create(kinds.POD, unprepared)
        assert not holds(await reaches(cluster, "well", "Succeeded"), "Ready")
        statuses = (await reaches(cluster, "ill", "Failed"))["status"]["containerStatuses"]
        assert statuses[0]["state"]["terminated"]["exitCode"] == 7
        await reaches(cluster, "unprepared", "Failed")
        assert "first" in await cluster.kubectl("logs", "unprepared")
        assert cluster.processes() == {}
        await cluster.kubectl("delete", "pod", "well", "--wait=true", "--timeout=10s")


async def test_what_a_container_sees(tmp_path: Path) -> None:
    environment = [
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "password"}}},
        {"name": "URL", "value": "redis://echo.default.svc:6379"},
    ]
    mounts = [
        {"name": "models", "mountPath": "/models"},
        {"name": "scratch", "mountPath": "/scratch"},
    ]
    volumes = [
        {"name": "models", "persistentVolumeClaim": {"claimName": "models"}},
        {"name": "scratch", "emptyDir": {}},
    ]
    script = (
        "echo $POD_IP $NAME $URL; cat /models/model; "
        'touch /scratch/x; echo $1; test -n "$KUBECONFIG" && echo token'
    )
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "model").write_text("weights\n")
    async with Cluster(tmp_path / "c", claims={"models": tmp_path / "models"}) as cluster:
        store, ports = cluster.store, [{"port": 6379}]
        store.create(kinds.SERVICE, {"metadata": {"name": "echo"}, "spec": {"ports": ports}})
        one = container("sh", "-c", script, args=["0", "0.0.0.0:$(NAME)/$(PASSWORD)"])
        one |= {"env": environment, "volumeMounts": mounts}
        store.create(kinds.POD, pod("p", one, volumes=volumes, restartPolicy="Never"))
        await asyncio.sleep(0.3)
        assert status_of(of(cluster, "p"))["phase"] == "Pending"  # for lack of the Secret
        data = {"password": base64.b64encode(b"pw").decode()}
        store.create(kinds.SECRET, {"metadata": {"name": "s"}, "data": data})
        address = (await reaches(cluster, "p", "Succeeded"))["status"]["podIP"]
        service = cluster.service("echo", 6379)
        assert cluster.log("p").splitlines() == [
            f"{address} p redis://{service}",
            "weights",
            f"{address}:p/pw",
            "token",
        ]


async def test_a_failing_liveness_probe_restarts(tmp_path: Path) -> None:
    probe = {
        "exec": {"command": ["test", "-e", "alive"]},
        "periodSeconds": 1,
        "failureThreshold": 2,
    }
    script = "echo begin; touch alive; sleep 1; rm alive; sleep 100"
    async with Cluster(tmp_path) as cluster:
        one = shell(script, livenessProbe=probe)
        cluster.store.create(kinds.POD, pod("p", one, terminationGracePeriodSeconds=1))
        await cluster.until(lambda: cluster.log("p").count("begin") == 2, 20, "a second life")
        (status,) = of(cluster, "p")["status"]["containerStatuses"]
        assert status["restartCount"] == 1
        assert status["lastState"]["terminated"]["exitCode"] == 128 + signal.SIGTERM


async def test_nothing_is_probed_for_life_or_ready_before_it_has_started(tmp_path: Path) -> None:
    started = {"exec": {"command": ["test", "-e", "up"]}, "periodSeconds": 1, "failureThreshold": 9}
    lives = {"exec": {"command": ["test", "-e", "up"]}, "periodSeconds": 1, "failureThreshold": 1}
    async with Cluster(tmp_path) as cluster:
        one = shell("sleep 2.5; touch up; sleep 100", startupProbe=started, livenessProbe=lives)
        spec = {"terminationGracePeriodSeconds": 0}
        cluster.store.create(kinds.POD, pod("p", one, **spec))
        await reaches(cluster, "p", "Running")
        assert not holds(of(cluster, "p"), "Ready")
        await cluster.until(lambda: holds(of(cluster, "p"), "Ready"), 20, "ready")
        (status,) = of(cluster, "p")["status"]["containerStatuses"]
        assert (status["restartCount"], status["started"]) == (0, True)


async def test_what_does_not_leave_in_its_grace_is_killed(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        stubborn = shell("trap '' TERM; echo deaf; while :; do sleep 0.1; done")
        polite = shell("trap 'echo bye; exit 0' TERM; echo hears; while :; do sleep 0.1; done")
        for name, one in (("stubborn", stubborn), ("polite", polite)):
            cluster.store.create(kinds.POD, pod(name, one, terminationGracePeriodSeconds=1))
        await cluster.until(lambda: "deaf" in cluster.log("stubborn"), 10, "it is deaf")
        await cluster.until(lambda: "hears" in cluster.log("polite"), 10, "it hears")
        await cluster.kubectl("delete", "pods", "--all", "--wait=true", "--timeout=20s")
        assert cluster.processes() == {}
        assert "bye" in cluster.log("polite")


async def test_no_process_outlives_the_cluster(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.store.create(kinds.POD, pod("p", shell("sleep 100 & sleep 100")))
        await reaches(cluster, "p", "Running")
        pid = cluster.processes()["p"]["c"]
        await cluster.until(
            lambda: len(psutil.Process(pid).children(recursive=True)) == 2, 10, "both sleep"
        )
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    gone, alive = psutil.wait_procs(family, 5)
    assert not alive
    assert len(gone) == 3


async def test_a_service_leads_to_ready_pods_and_connections_stay(tmp_path: Path) -> None:
    (tmp_path / "echo.py").write_text(ECHO)
    probe = {
        "exec": {"command": ["test", "-e", "ready"]},
        "periodSeconds": 1,
        "failureThreshold": 1,
    }

    def echo(name: str) -> Obj:
        command = [sys.executable, str(tmp_path / "echo.py"), "0.0.0.0", "$(POD)"]
        field = {"fieldRef": {"fieldPath": "metadata.name"}}
        one = container(*command, env=[{"name": "POD", "valueFrom": field}], readinessProbe=probe)
        return pod(name, one, terminationGracePeriodSeconds=2)

    async with Cluster(tmp_path / "c") as cluster:
        spec = {"selector": {"app": "echo"}, "ports": [{"port": 80, "targetPort": 7000}]}
        cluster.store.create(kinds.SERVICE, {"metadata": {"name": "echo"}, "spec": spec})
        host, port = cluster.service("echo", 80).split(":")

        async def ask(line: str = "") -> tuple[str, Callable[[str], Awaitable[str]]]:
            """Who answers on a new connection, and how to go on there."""
            reader, writer = await asyncio.open_connection(host, int(port))

            async def again(line: str) -> str:
                writer.write(f"{line}\n".encode())
                return (await reader.readline()).decode().strip()

            return (await again("who")).split()[0], again

        def mark(name: str, ready: bool) -> None:
            (folder,) = (tmp_path / "c" / "pods").glob(f"{name}-*")
            (folder / "ready").touch() if ready else (folder / "ready").unlink()

        for name in ("a", "b"):
            cluster.store.create(kinds.POD, echo(name))
            await cluster.until(lambda name=name: "serves" in cluster.log(name), 20, "it serves")
        with pytest.raises(ConnectionRefusedError):
            await ask()
        mark("a", True)
        await cluster.until(lambda: cluster.proxy.listening, 10, "it listens")
        who, again = await ask()
        assert who == "a"
        mark("b", True)
        await cluster.until(lambda: holds(of(cluster, "b"), "Ready"), 10, "b is ready")
        await asyncio.sleep(0.1)
        assert {(await ask())[0] for _ in range(4)} == {"a", "b"}
        mark("a", False)
        await cluster.until(lambda: not holds(of(cluster, "a"), "Ready"), 10, "a is not")
        await asyncio.sleep(0.1)
        assert {(await ask())[0] for _ in range(4)} == {"b"}
        assert await again("still") == "a still"
        os.kill(cluster.processes()["a"]["c"], signal.SIGKILL)
        assert await again("gone") == ""


def test_connections_go_to_what_ends_only_where_nothing_else_is() -> None:
    def one(address: str, ready: bool, serving: bool) -> Obj:
        return {"addresses": [address], "conditions": {"ready": ready, "serving": serving}}

    ready, ending, broken = one("r", True, True), one("e", False, True), one("b", False, False)
    ports = [{"name": "grpc", "port": 1}, {"name": "metrics", "port": 2}]

    def found(*endpoints: Obj) -> list[tuple[str, int]]:
        return backends([{"ports": ports, "endpoints": list(endpoints)}], "metrics")

    assert found(ready, ending, broken) == [("r", 2)]
    assert found(ending, broken) == [("e", 2)]
    assert found(broken) == []


@pytest.mark.parametrize(
    ("answers", "verdicts"),
    [
        ("yynny", [None, True, None, False, None]),
        ("nyyyn", [None, None, True, True, None]),
        ("nnyny", [None, False, None, None, None]),
    ],
)
async def test_thresholds(answers: str, verdicts: list[bool | None]) -> None:
    thresholds = {"successThreshold": 2, "failureThreshold": 2, "periodSeconds": 0}
    codes = iter(0 if answer == "y" else 1 for answer in answers)

    async def run(command: list[str]) -> int:
        return next(codes)

    given = probes.verdicts({"exec": {"command": []}} | thresholds, "127.0.0.1", run)
    assert [await anext(given) for _ in answers] == verdicts


def test_what_an_image_runs_is_not_taken_for_a_path_in_its_pod(tmp_path: Path) -> None:
    host = Host(tmp_path, {"image": ["/tmp/python"]}, {}, {}, {}, kubeconfig=str)
    mounts = [{"name": "scratch", "mountPath": "/tmp"}]
    container = {"name": "c", "image": "r/image:1", "args": ["/tmp/x"], "volumeMounts": mounts}
    metadata = {"name": "p", "namespace": "default", "uid": "u"}
    spec = {
        "containers": [container],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        "automountServiceAccountToken": False,
    }
    pod = Translation(Store(), {"metadata": metadata, "spec": spec}, "127.0.0.9", host)
    pod.mount()
    (program, argument), _ = pod.command(container)
    assert program == "/tmp/python"
    assert argument.startswith(str(pod.folder))
