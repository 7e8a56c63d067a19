"""The controller of EndpointSlices: one slice for each Service with a selector.

Faithful: labels copied from the Service, ready / serving / terminating, pods without an address or
at their end left out, named target ports. Not here: more than one slice for a Service,
publishNotReadyAddresses, topology hints, IPv6, and the old Endpoints objects.
"""

from typing import Any, Final

from tests.kube import kinds
from tests.kube.objects import child_of, holds, is_finished, is_terminating, status_of
from tests.kube.selectors import selector_of
from tests.kube.store import Obj, Objs, Store

SERVICE_NAME: Final = "kubernetes.io/service-name"
MANAGED_BY: Final = {"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}


def reconcile(store: Store) -> None:
    """Bring the slices of all Services up to date."""
    for service in store.list(kinds.SERVICE):
        if "selector" in service["spec"]:
            _service(store, service)


def _service(store: Store, service: Obj) -> None:
    metadata, spec = service["metadata"], service["spec"]
    pods = [
        pod
        for pod in store.list(kinds.POD, metadata["namespace"], selector_of(spec["selector"]))
        if "podIP" in status_of(pod) and not is_finished(pod)
    ]
    labels = metadata.get("labels", {}) | MANAGED_BY | {SERVICE_NAME: metadata["name"]}
    if spec["clusterIP"] == "None":
        labels["service.kubernetes.io/headless"] = ""
    child = child_of(kinds.SERVICE, service, metadata["name"])
    content = {
        "metadata": child | {"labels": labels},
        "addressType": "IPv4",
        "endpoints": [_endpoint(pod) for pod in pods],
        "ports": _ports(service, pods),
    }
    store.apply(kinds.ENDPOINT_SLICE, content, manager="endpoints", force=True)


def _endpoint(pod: Obj) -> dict[str, Any]:
    serving, terminating = holds(pod, "Ready"), is_terminating(pod)
    ready = serving and not terminating
    named = {field: pod["metadata"][field] for field in ("namespace", "name", "uid")}
    return {
        "addresses": [pod["status"]["podIP"]],
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        "nodeName": pod["spec"].get("nodeName", ""),
        "targetRef": {"kind": "Pod", **named},
    }


def _ports(service: Obj, pods: Objs) -> list[dict[str, Any]]:
    """Its ports as pods have them; one that they name, and none declares, is left out."""
    declared = {
        port.get("name"): port["containerPort"]
        for pod in pods
        for container in pod["spec"]["containers"]
        for port in container.get("ports", [])
    }
    found = []
    for port in service["spec"]["ports"]:
        number = declared.get(port["targetPort"], port["targetPort"])
        if isinstance(number, int):
            kept = {key: port[key] for key in ("protocol", "appProtocol") if key in port}
            found.append({"name": port.get("name", ""), "port": number} | kept)
    return found
