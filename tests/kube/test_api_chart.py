"""The chart of this project, whatever its values: the API server takes it, and keeps none of it."""

import asyncio

import helm_python
import pytest

from tests.helm.cases import CASES
from tests.helm.chart import chart
from tests.kube import kinds
from tests.kube.server import ApiServer

pytestmark = pytest.mark.slow


def present(api: ApiServer) -> list[tuple[str, str]]:
    return [
        (kind.kind, obj["metadata"]["name"])
        for kind in kinds.KINDS
        for obj in api.store.list(kind, "team")
    ]


@pytest.mark.parametrize("case", CASES)
async def test_install_upgrade_and_uninstall_leave_nothing(api: ApiServer, case: str) -> None:
    api.store.create(kinds.NAMESPACE, {"metadata": {"name": "team"}})
    before = present(api)
    with helm_python.Config(kubeconfig_content=api.kubeconfig(), namespace="team") as helm:
        await asyncio.to_thread(helm.install, chart(), "demo", CASES[case], namespace="team")
        installed, versions = present(api), api.store.list(kinds.DEPLOYMENT, "team")
        await asyncio.to_thread(helm.upgrade, chart(), "demo", CASES[case], namespace="team")
        assert api.store.list(kinds.DEPLOYMENT, "team") == versions  # nothing restarts
        await asyncio.to_thread(helm.upgrade, chart(), "demo", CASES["several pools"])
        await asyncio.to_thread(helm.rollback, "demo", version=1)
        release = ("Secret", "sh.helm.release.v1.demo.v")
        kept = [one for one in present(api) if not one[1].startswith(release[1])]
        assert kept == [one for one in installed if not one[1].startswith(release[1])]
        await asyncio.to_thread(helm.uninstall, "demo")
    assert present(api) == before
