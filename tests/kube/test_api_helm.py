"""Real Helm against the API server: a release's life, waiting, hooks, conflicts, dry runs."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import helm_python
import pytest

from tests.kube import kinds
from tests.kube.objects import follow, write_status
from tests.kube.server import ApiServer
from tests.kube.store import Store

pytestmark = pytest.mark.slow

Obj = dict[str, Any]

TEMPLATE = """
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}-config"}
data: {replicas: "{{ .Values.replicas }}"}
---
{{- if .Values.extra }}
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}-extra"}
---
{{- end }}
apiVersion: v1
kind: Service
metadata: {name: "{{ .Release.Name }}"}
spec:
  selector: {app: small}
  ports: [{name: http, port: 80, targetPort: http}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: "{{ .Release.Name }}"}
spec:
  {{- if .Values.replicas }}
  replicas: {{ .Values.replicas }}
  {{- end }}
  selector: {matchLabels: {app: small}}
  template:
    metadata: {labels: {app: small}}
    spec:
      containers:
        - name: web
          image: web:1
          ports: [{name: http, containerPort: 8080}]
          env:
            - {name: A, value: a}
            {{- range .Values.env }}
            - {name: "{{ . }}", value: x}
            {{- end }}
---
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata: {name: "{{ .Release.Name }}"}
spec:
  selector: {matchLabels: {app: small}}
  podMetricsEndpoints: [{port: http}]
---
apiVersion: v1
kind: Pod
metadata:
  name: "{{ .Release.Name }}-test"
  annotations: {helm.sh/hook: test, helm.sh/hook-delete-policy: hook-succeeded}
spec:
  restartPolicy: Never
  containers: [{name: test, image: "test:1"}]
"""


@pytest.fixture
def chart(tmp_path: Path) -> str:
    root = tmp_path / "small"
    (root / "templates").mkdir(parents=True)
    (root / "Chart.yaml").write_text("{apiVersion: v2, name: small, version: 0.1.0}")
    (root / "values.yaml").write_text("{replicas: 2, extra: true, env: []}")
    (root / "templates" / "all.yaml").write_text(TEMPLATE)
    return str(root)


@pytest.fixture
async def helm(api: ApiServer) -> AsyncIterator[helm_python.Config]:
    with helm_python.Config(kubeconfig_content=api.kubeconfig(), namespace="team") as config:
        yield config


@pytest.fixture
async def controllers(api: ApiServer) -> AsyncIterator[None]:
    """What makes Deployments available and lets pods succeed."""
    task = asyncio.create_task(follow(api.store, complete))
    yield
    task.cancel()


def complete(store: Store) -> None:
    for pod in store.list(kinds.POD):
        pod["status"] = {"phase": "Succeeded"}
        write_status(store, kinds.POD, pod)
    for deployment in store.list(kinds.DEPLOYMENT):
        counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        deployment["status"] = dict.fromkeys(counts, deployment["spec"]["replicas"])
        deployment["status"]["observedGeneration"] = deployment["metadata"]["generation"]
        deployment["status"]["conditions"] = [
            {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"},
            {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
        ]
        write_status(store, kinds.DEPLOYMENT, deployment)


def names(store: Store, kind: kinds.Kind) -> list[str]:
    return [obj["metadata"]["name"] for obj in store.list(kind, "team")]


def environment(store: Store) -> list[str]:
    web = store.list(kinds.DEPLOYMENT, "team")[0]["spec"]["template"]["spec"]["containers"][0]
    return [one["name"] for one in web["env"]]


async def test_the_life_of_a_release(api: ApiServer, helm: helm_python.Config, chart: str) -> None:
    store = api.store
    installed = await asyncio.to_thread(
        helm.install, chart, "demo", namespace="team", create_namespace=True
    )
    assert installed["status"] == "deployed"
    assert names(store, kinds.SECRET) == ["sh.helm.release.v1.demo.v1"]
    assert names(store, kinds.CONFIG_MAP) == ["demo-config", "demo-extra"]

    values = {"replicas": 3, "extra": False, "env": ["B"]}
    await asyncio.to_thread(helm.upgrade, chart, "demo", values)
    assert names(store, kinds.CONFIG_MAP) == ["demo-config"]
    assert environment(store) == ["A", "B"]
    assert store.list(kinds.DEPLOYMENT, "team")[0]["spec"]["replicas"] == 3

    await asyncio.to_thread(helm.rollback, "demo")
    assert names(store, kinds.CONFIG_MAP) == ["demo-config", "demo-extra"]
    assert environment(store) == ["A"]
    assert (await asyncio.to_thread(helm.status, "demo"))["revision"] == 3
    history = await asyncio.to_thread(helm.history, "demo")
    assert [one["status"] for one in history] == ["superseded", "superseded", "deployed"]
    assert [one["name"] for one in await asyncio.to_thread(helm.list)] == ["demo"]

    await asyncio.to_thread(helm.uninstall, "demo")
    left = [(kind.kind, name) for kind in kinds.KINDS for name in names(store, kind)]
    assert left == []


async def test_helm_waits_for_what_it_installs_and_runs_its_tests(
    api: ApiServer, helm: helm_python.Config, chart: str, controllers: None
) -> None:
    options = {"namespace": "team", "create_namespace": True, "wait": "watcher", "timeout": 20}
    await asyncio.to_thread(helm.install, chart, "demo", **options)
    assert any("sendInitialEvents" in request for request in api.requests)
    result = await asyncio.to_thread(helm.test, "demo", timeout=20, logs=True)
    assert result["release"]["status"] == "deployed"
    assert "log of demo-test" in result["logs"]
    assert names(api.store, kinds.POD) == []
    await asyncio.to_thread(helm.uninstall, "demo", wait="watcher", timeout=20)
    assert names(api.store, kinds.DEPLOYMENT) == []


async def test_helm_gives_up_on_what_does_not_become_ready(
    api: ApiServer, helm: helm_python.Config, chart: str
) -> None:
    options = {"namespace": "team", "create_namespace": True, "wait": "watcher", "timeout": 1}
    with pytest.raises(helm_python.HelmError, match="demo"):
        await asyncio.to_thread(helm.install, chart, "demo", **options)
    history = await asyncio.to_thread(helm.history, "demo")
    assert [one["status"] for one in history] == ["failed"]


async def test_replicas_left_to_an_autoscaler_survive_an_upgrade(
    api: ApiServer, helm: helm_python.Config, chart: str
) -> None:
    values = {"replicas": 0}  # the template leaves them out
    await asyncio.to_thread(
        helm.install, chart, "demo", values, namespace="team", create_namespace=True
    )
    scaled = api.store.list(kinds.DEPLOYMENT, "team")[0]
    scaled["spec"]["replicas"] = 7
    api.store.replace(kinds.DEPLOYMENT, scaled, manager="autoscaler")
    await asyncio.to_thread(helm.upgrade, chart, "demo", {**values, "env": ["B"]})
    assert environment(api.store) == ["A", "B"]
    assert api.store.list(kinds.DEPLOYMENT, "team")[0]["spec"]["replicas"] == 7
    with pytest.raises(helm_python.HelmError, match=r'conflict with "autoscaler"'):
        await asyncio.to_thread(helm.upgrade, chart, "demo", {"replicas": 2})


async def test_a_dry_run_on_the_server_leaves_nothing(
    api: ApiServer, helm: helm_python.Config, chart: str
) -> None:
    revision = api.store.revision
    result = await asyncio.to_thread(helm.install, chart, "demo", dry_run="server")
    assert "kind: Deployment" in result["manifest"]
    assert api.store.revision == revision


async def test_an_account_without_rights_may_not_install(
    api: ApiServer, helm: helm_python.Config, chart: str
) -> None:
    account = "system:serviceaccount:team:weak"
    config = helm_python.Config(
        kubeconfig_content=api.kubeconfig(), namespace="team", kube_as_user=account
    )
    with config, pytest.raises(helm_python.HelmError, match=f'User "{account}" cannot get'):
        await asyncio.to_thread(config.install, chart, "demo")
