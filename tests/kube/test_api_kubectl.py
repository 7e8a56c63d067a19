"""Real kubectl against the API server."""

import asyncio
import json
from collections.abc import Callable

import pytest

from tests.kube import kinds
from tests.kube.conftest import Kubectl
from tests.kube.examples import config_map, deployment, pod
from tests.kube.server import ApiServer

pytestmark = pytest.mark.slow


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not check():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_discovery(kubectl: Kubectl) -> None:
    assert "Server Version: v1.36" in await kubectl("version")
    resources = await kubectl("api-resources", "--no-headers")
    assert len(resources.splitlines()) == len(kinds.KINDS)
    assert "keda.sh/v1alpha1" in await kubectl("api-versions")


async def test_both_ways_to_apply(api: ApiServer, kubectl: Kubectl) -> None:
    def data() -> dict[str, str]:
        found = api.store.get(kinds.CONFIG_MAP, "default", "c") or {}
        return dict(found["data"])

    await kubectl("apply", "-f", "-", stdin=json.dumps(config_map("c", a="1", b="2")))
    await kubectl("apply", "-f", "-", stdin=json.dumps(config_map("c", a="1", c="3")))
    assert data() == {"a": "1", "c": "3"}
    await kubectl("delete", "cm", "c")
    server_side = ("apply", "--server-side", "-f", "-")
    await kubectl(*server_side, stdin=json.dumps(config_map("c", a="1", b="2")))
    await kubectl(*server_side, stdin=json.dumps(config_map("c", a="1")))
    assert data() == {"a": "1"}
    await kubectl("patch", "cm", "c", "-p", '{"data": {"a": "9"}}')
    with pytest.raises(AssertionError, match=r'conflict with "kubectl-patch": \.data\.a'):
        await kubectl(*server_side, stdin=json.dumps(config_map("c", a="1")))
    await kubectl(*server_side, "--force-conflicts", stdin=json.dumps(config_map("c", a="1")))
    assert data() == {"a": "1"}


async def test_patch_scale_and_read(api: ApiServer, kubectl: Kubectl) -> None:
    await kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(deployment("d", A="1")))
    container = {"name": "web", "image": "web:2", "env": [{"name": "B", "value": "2"}]}
    patch = {"spec": {"template": {"spec": {"containers": [container]}}}}
    await kubectl("patch", "deploy", "d", "-p", json.dumps(patch))
    merge = {"metadata": {"annotations": {"x": "y"}}}
    await kubectl("patch", "deploy", "d", "--type=merge", "-p", json.dumps(merge))
    await kubectl("scale", "deploy", "d", "--replicas=5")
    await kubectl("rollout", "restart", "deploy/d")
    got = json.loads(await kubectl("get", "deploy", "d", "-o", "json"))
    web = got["spec"]["template"]["spec"]["containers"][0]
    assert (web["image"], [one["name"] for one in web["env"]]) == ("web:2", ["A", "B"])
    assert (got["spec"]["replicas"], got["metadata"]["generation"]) == (5, 4)
    assert got["metadata"]["annotations"] == {"x": "y"}
    assert "d " in await kubectl("get", "deploy", "-o", "wide")
    selected = await kubectl("get", "deploy", "-A", "--field-selector=metadata.name!=d")
    assert "No resources found" in selected


async def test_wait_watch_and_delete(api: ApiServer, kubectl: Kubectl) -> None:
    running = api.store.create(kinds.POD, pod("p"))
    waiting = asyncio.create_task(kubectl("wait", "--for=condition=Ready", "pod/p"))
    watching = asyncio.create_task(kubectl("get", "pod", "-w", "-o=name", "--request-timeout=2s"))
    await until(lambda: len([one for one in api.requests if "watch=" in one]) == 2)
    running["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    api.store.replace(kinds.POD, running, subresource="status")
    assert "condition met" in await waiting
    assert (await watching).split() == ["pod/p", "pod/p"]
    assert await kubectl("logs", "p") == "log of p"

    deleting = asyncio.create_task(kubectl("delete", "pod", "p"))
    await until(lambda: "deletionTimestamp" in api.store.list(kinds.POD)[0]["metadata"])
    assert not deleting.done()
    api.store.delete(kinds.POD, "default", "p", grace=0)
    assert "deleted" in await deleting
    api.store.create(kinds.CONFIG_MAP, config_map("c"))
    await kubectl("delete", "cm", "--all")
    assert api.store.list(kinds.CONFIG_MAP) == []
    with pytest.raises(AssertionError, match=r'Error from server \(NotFound\): pods "p" not found'):
        await kubectl("get", "pod", "p")


async def test_roles_of_a_namespace_bind_its_accounts(api: ApiServer, kubectl: Kubectl) -> None:
    api.store.create(kinds.POD, pod("p"))
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
    api.store.create(kinds.ROLE, {"metadata": {"name": "r"}, "rules": rules})
    binding = {
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": kinds.ROLE.group, "kind": "Role", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "name": "bob", "namespace": "default"}],
    }
    api.store.create(kinds.ROLE_BINDING, binding)
    user = "system:serviceaccount:default:bob"
    bob = ("--as", user)
    assert "p " in await kubectl("get", "pods", *bob)
    assert "p " in await kubectl("get", "pods", "p", *bob)
    for command, words in (
        (("get", "pods", "-A"), 'cannot list resource "pods" in API group "" at the cluster scope'),
        (("delete", "pod", "p"), 'pods "p" is forbidden: User "{}" cannot delete resource "pods"'),
        (("get", "deploy"), 'in API group "apps" in the namespace "default"'),
        (("get", "pods", "-n", "kube-system"), 'in the namespace "kube-system"'),
    ):
        with pytest.raises(AssertionError, match="Forbidden") as refused:
            await kubectl(*command, *bob)
        assert words.format(user) in str(refused.value)
