"""The way to the Kubernetes API server, and its answers."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiohttp import ClientResponse
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config
from kubernetes.aio.config.kube_config import list_kube_config_contexts

NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
REFUSED: Final = frozenset({401, 403})


class ClusterError(Exception):
    """There is no Kubernetes to ask; the message says what to set."""


class ApiError(Exception):
    """The API server said no.

    Args: `status`, of HTTP or of a watch's ERROR event; `message`, in its words.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"the API server answers {status}: {message}")
        self.status = status


@dataclass(frozen=True, slots=True)
class Cluster:
    """Args: the `namespace` that the workers' pods are in; how to get there."""

    namespace: str
    configuration: Configuration

    @classmethod
    async def find(cls, namespace: str | None) -> "Cluster":
        """The cluster of KUBECONFIG, else the one that this process runs in.

        Args:
            namespace: None takes that of POD_NAMESPACE, of the service account, or of the context.

        Raises:
            ClusterError: there is none, or no namespace is known.
        """
        configuration, path = Configuration(), os.environ.get("KUBECONFIG")
        try:
            if path:
                await load_kube_config(  # type: ignore[no-untyped-call]
                    path, client_configuration=configuration, persist_config=False
                )
                _, context = list_kube_config_contexts(path)  # type: ignore[no-untyped-call]
                fallback = context["context"].get("namespace") or "default"
            else:
                load_incluster_config(configuration)  # type: ignore[no-untyped-call]
                fallback = NAMESPACE_FILE.read_text().strip()
        except (ConfigException, OSError) as error:
            where = f"KUBECONFIG={path}" if path else "no KUBECONFIG, and in no pod"
            raise ClusterError(
                f"--discover needs a Kubernetes cluster, but {where}: {error}. Run in a pod with"
                " the token of a service account mounted, or set KUBECONFIG to a file"
            ) from error
        return cls(namespace or os.environ.get("POD_NAMESPACE") or fallback, configuration)

    def client(self) -> ApiClient:
        """A client with connections of its own."""
        return ApiClient(self.configuration)


async def check(response: ClientResponse) -> None:
    """Raises ApiError when the answer is one."""
    if response.status >= 400:
        raise api_error(response.status, await response.read())


def api_error(status: int, body: bytes) -> ApiError:
    """What an answer, a Status as JSON if all is well, says went wrong."""
    try:
        said: Any = json.loads(body)
        return ApiError(status, said["message"])
    except (ValueError, KeyError, TypeError):
        return ApiError(status, body[:200].decode(errors="replace"))


def advice(error: ApiError, namespace: str, resource: str, verbs: str) -> str:
    """What to do about a refusal: which Role is missing; empty when it is none."""
    if error.status == 401:
        return "; the token of the gateway's service account is not accepted"
    if error.status == 403:
        return (
            f"; the gateway's service account needs a Role in namespace {namespace!r} that allows"
            f" {verbs} on {resource}"
        )
    return ""
