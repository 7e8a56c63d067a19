"""How a gateway is told where to look for pods."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.app import app
from gateway.config import ConfigError, GatewayConfig
from gateway.fleet.discovery.cluster import Cluster, ClusterError
from gateway.main import gateway
from tests.kube.access import ADMIN, kubeconfig


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "POD_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)


def kubeconfig_in(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = directory / "kubeconfig"
    path.write_text(kubeconfig("http://127.0.0.1:1", ADMIN, "of-the-context"))
    monkeypatch.setenv("KUBECONFIG", str(path))


async def test_the_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubeconfig_in(tmp_path, monkeypatch)
    assert (await Cluster.find(None)).namespace == "of-the-context"
    monkeypatch.setenv("POD_NAMESPACE", "of-the-pod")
    assert (await Cluster.find(None)).namespace == "of-the-pod"
    assert (await Cluster.find("asked")).namespace == "asked"


async def test_no_cluster_says_both_ways_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ClusterError) as caught:
        await Cluster.find("ns")
    assert "service account" in str(caught.value)
    assert "KUBECONFIG" in str(caught.value)
    monkeypatch.setenv("KUBECONFIG", "/nowhere/kubeconfig")
    with pytest.raises(ClusterError, match="/nowhere/kubeconfig"):
        await Cluster.find("ns")


async def test_deletion_costs_need_discovery() -> None:
    with pytest.raises(ConfigError, match="--deletion-costs needs --discover"):
        async with gateway(GatewayConfig(port=0, redis_url="redis://x", deletion_costs=True)):
            pass


def test_a_gateway_without_a_cluster_does_not_start() -> None:
    result = CliRunner().invoke(
        app, ["gateway", "--port", "0", "--redis", "redis://127.0.0.1:1", "--discover", "a=b"]
    )
    assert result.exit_code == 1
    assert "KUBECONFIG" in result.stderr
