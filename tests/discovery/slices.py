"""EndpointSlices as Kubernetes' own controller writes them, for tests."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

SELECTOR = "app.kubernetes.io/component=worker"
LABELS = {
    "app.kubernetes.io/component": "worker",
    "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
}


class Pod(NamedTuple):
    """A pod, as its entry in a slice shows it; None is a condition that is not said."""

    uid: str
    name: str
    address: str = ""
    ready: bool | None = True
    terminating: bool | None = None

    def entry(self) -> dict[str, Any]:
        conditions = {"ready": self.ready, "serving": self.ready, "terminating": self.terminating}
        return {
            "addresses": [self.address] if self.address else [],
            "conditions": {name: value for name, value in conditions.items() if value is not None},
            "targetRef": {"kind": "Pod", "name": self.name, "namespace": "ns", "uid": self.uid},
        }


def slice_of(
    name: str,
    pods: Iterable[Pod],
    *,
    uid: str = "",
    labels: Mapping[str, str] = LABELS,
    family: str = "IPv4",
) -> dict[str, Any]:
    """A slice; the API server gives it a UID of its own."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": uid or f"uid of {name}",
            "labels": dict(labels),
        },
        "addressType": family,
        # NOTE: as the controller writes it when there are none.
        "endpoints": [pod.entry() for pod in pods] or None,
        "ports": [{"name": "grpc", "port": 50052, "protocol": "TCP"}],
    }
