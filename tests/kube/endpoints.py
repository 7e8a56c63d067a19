"""The controller of EndpointSlices: one slice for each Service with a selector.

Faithful: labels copied from the Service, ready / serving / terminating, publishNotReadyAddresses,
pods without an address or at their end left out, named target ports. Not here: more than one slice
for a Service, topology hints, IPv6, and the old Endpoints objects.
"""

from typing import Any, Final

from tests.kube import kinds
from tests.kube.objects import (
    child_of,
    holds,
    is_finished,
    is_terminating,
    owned,
    status_of,
    suffix,
)
from tests.kube.store import Obj, Store

SERVICE_NAME: Final = "kubernetes.io/service-name"
MANAGED_BY: Final = {"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}


def reconcile(store: Store) -> None:
    """Bring the slices of all Services up to date."""
    for service in store.list(kinds.SERVICE):
        if service["spec"].get("selector") and not is_terminating(service):
            _service(store, service)


def _service(store: Store, service: Obj) -> None:
    metadata, spec = service["metadata"], service["spec"]
    selector = ",".join(f"{key}={value}" for key, value in spec["selector"].items())
    pods = [
        pod
        for pod in store.list(kinds.POD, metadata["namespace"], selector)
        if status_of(pod).get("podIP") and not is_finished(pod)
    ]
    slices = owned(store, kinds.ENDPOINT_SLICE, service)
    labels = (metadata.get("labels") or {}) | MANAGED_BY | {SERVICE_NAME: metadata["name"]}
    if spec.get("clusterIP") == "None":
        labels["service.kubernetes.io/headless"] = ""
    content = {
        "addressType": "IPv4",
        "endpoints": [_endpoint(service, pod) for pod in pods],
        "ports": _ports(service, pods),
    }
    if not slices:
        name = f"{metadata['name']}-{suffix()}"
        new = {"metadata": child_of(kinds.SERVICE, service, name) | {"labels": labels}}
        store.create(kinds.ENDPOINT_SLICE, new | content)
        return
    before = slices[0]
    after = before | content | {"metadata": before["metadata"] | {"labels": labels}}
    if after != before:
        store.replace(kinds.ENDPOINT_SLICE, after)


def _endpoint(service: Obj, pod: Obj) -> dict[str, Any]:
    serving, terminating = holds(pod, "Ready"), is_terminating(pod)
    unready_too = bool(service["spec"].get("publishNotReadyAddresses"))
    metadata = pod["metadata"]
    return {
        "addresses": [pod["status"]["podIP"]],
        "conditions": {
            "ready": unready_too or (serving and not terminating),
            "serving": serving,
            "terminating": terminating,
        },
        "nodeName": pod["spec"].get("nodeName", ""),
        "targetRef": {
            "kind": "Pod",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
    }


def _ports(service: Obj, pods: list[Obj]) -> list[dict[str, Any]]:
    """Its ports as pods have them; one that they name, and none declares, is left out."""
    declared = {
        port["name"]: port["containerPort"]
        for pod in pods
        for container in pod["spec"]["containers"]
        for port in container.get("ports") or []
        if "name" in port
    }
    found = []
    for port in service["spec"].get("ports") or []:
        number = declared.get(port["targetPort"], port["targetPort"])
        if isinstance(number, int):
            kept = {key: port[key] for key in ("protocol", "appProtocol") if key in port}
            found.append({"name": port.get("name", ""), "port": number} | kept)
    return found
