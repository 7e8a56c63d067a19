"""A cluster that has an API server and EndpointSlices that tests write, and nothing else."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.discovery.slices import SELECTOR, Pod, slice_of
from tests.kube import kinds
from tests.kube.access import ADMIN
from tests.kube.server import ApiServer
from tests.kube.store import Store

NAMESPACE = "ns"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:gateway"


class SliceCluster:
    """Args: its API `server`; the file of its kubeconfig."""

    def __init__(self, server: ApiServer, kubeconfig: Path) -> None:
        self.server = server
        self.store = server.store
        self.kubeconfig = kubeconfig

    def act_as(self, user: str) -> None:
        """Who reads the kubeconfig from now on is this user."""
        self.kubeconfig.write_text(self.server.kubeconfig(user, NAMESPACE))

    def put(self, name: str, pods: Iterable[Pod], **changes: str) -> None:
        """A slice is there with these pods."""
        each = slice_of(name, pods, **changes)
        del each["metadata"]["uid"]
        if self.store.get(kinds.ENDPOINT_SLICE, NAMESPACE, name):
            self.store.replace(kinds.ENDPOINT_SLICE, each)
        else:
            self.store.create(kinds.ENDPOINT_SLICE, each)

    def drop(self, name: str) -> None:
        """The slice is not there."""
        self.store.delete(kinds.ENDPOINT_SLICE, NAMESPACE, name)

    def allow(self, name: str, group: str, resource: str, *verbs: str) -> None:
        """A Role that lets the gateway's account do this."""
        rule = {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
        metadata = {"name": name, "namespace": NAMESPACE}
        self.store.create(kinds.ROLE, {"metadata": metadata, "rules": [rule]})
        self.store.create(
            kinds.ROLE_BINDING,
            {
                "metadata": metadata,
                "subjects": [{"kind": "ServiceAccount", "name": "gateway", "namespace": NAMESPACE}],
                "roleRef": {"apiGroup": kinds.ROLE.group, "kind": "Role", "name": name},
            },
        )


@asynccontextmanager
async def slice_cluster(
    directory: Path, monkeypatch: pytest.MonkeyPatch, bookmarks: float = 0.2
) -> AsyncIterator[SliceCluster]:
    """A cluster that KUBECONFIG leads to, as its administrator."""
    server = ApiServer(Store(), bookmarks=bookmarks)
    server.store.create(kinds.NAMESPACE, {"metadata": {"name": NAMESPACE}})
    await server.start()
    cluster = SliceCluster(server, directory / "kubeconfig")
    cluster.act_as(ADMIN)
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    try:
        yield cluster
    finally:
        await server.stop()


__all__ = ["ACCOUNT", "NAMESPACE", "SELECTOR", "SliceCluster", "slice_cluster"]
