"""What the server adds to an object and checks of it before it is stored.

Only the defaults that clients, controllers and kubelet of the tests rely on, and the checks that
people run into: names, selectors that match their template, fields that may not change.
"""

import base64
import re
from collections.abc import Iterator
from typing import Any

from tests.kube import kinds
from tests.kube.errors import invalid
from tests.kube.kinds import Kind

Obj = dict[str, Any]

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")
_SERVICE_NAME = re.compile(rf"(?=[a-z].{{0,62}}$){_LABEL}")

_SPECS: dict[Kind, Obj] = {
    kinds.DEPLOYMENT: {
        **{"replicas": 1, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10},
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
        },
    },
    kinds.REPLICA_SET: {"replicas": 1},
    kinds.STATEFUL_SET: {
        **{"replicas": 1, "podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
    },
    kinds.JOB: {"parallelism": 1, "completions": 1, "backoffLimit": 6},
    kinds.SERVICE: {"type": "ClusterIP", "sessionAffinity": "None"},
}
_POD: Obj = {"restartPolicy": "Always", "terminationGracePeriodSeconds": 30}
_POD |= {"dnsPolicy": "ClusterFirst", "serviceAccountName": "default"}
_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}

_IMMUTABLE = {
    kinds.DEPLOYMENT: ("selector",),
    kinds.REPLICA_SET: ("selector",),
    kinds.STATEFUL_SET: ("selector", "serviceName", "podManagementPolicy", "volumeClaimTemplates"),
    kinds.JOB: ("selector", "template", "completions"),
    kinds.SERVICE: ("clusterIP",),
}


def new_cluster_ips() -> Iterator[str]:
    """127.96.0.1 and what follows."""
    return (f"127.96.{number // 250}.{number % 250 + 1}" for number in range(60_000))


def admit(kind: Kind, obj: Obj, live: Obj | None, cluster_ips: Iterator[str]) -> None:
    """Check and complete an object in place; `live` is what it replaces."""
    _drop_nulls(obj)
    name, spec = obj["metadata"].get("name", ""), obj.get("spec", {})
    form = _SERVICE_NAME if kind == kinds.SERVICE else _NAME
    if not form.fullmatch(name) and kind not in (kinds.ROLE, kinds.ROLE_BINDING):
        why = "must consist of lower case alphanumeric characters, '-' or '.'"
        raise invalid(kind, name, f'metadata.name: Invalid value: "{name}": {why}')
    for field, value in _SPECS.get(kind, {}).items():
        spec.setdefault(field, value)
    template = obj if kind == kinds.POD else spec.get("template", {})
    if kind.built_in and "spec" in template:
        _complete_pod(template["spec"])
    if kind == kinds.SERVICE:
        _complete_service(spec, live, cluster_ips)
    if kind == kinds.SECRET:
        obj.setdefault("type", "Opaque")
        for field, text in obj.pop("stringData", {}).items():
            encoded = base64.b64encode(text.encode()).decode()
            obj.setdefault("data", {})[field] = encoded
    if kind in kinds.SCALABLE:
        selector = spec.get("selector", {}).get("matchLabels", {})
        labels = template.get("metadata", {}).get("labels", {})
        if not selector or not selector.items() <= labels.items():
            why = "Invalid value: `selector` does not match template `labels`"
            raise invalid(kind, name, f"spec.template.metadata.labels: {why}")
    for field in _IMMUTABLE.get(kind, ()) if live else ():
        if live and live["spec"].get(field) != spec.get(field):
            raise invalid(kind, name, f"spec.{field}: Invalid value: field is immutable")
    for field in ("type", "roleRef"):  # of Secrets and RoleBindings
        if live and live.get(field) != obj.get(field):
            raise invalid(kind, name, f"{field}: Invalid value: field is immutable")


def _drop_nulls(value: Any) -> None:
    if isinstance(value, dict):
        for name in [name for name, inner in value.items() if inner is None]:
            del value[name]
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            _drop_nulls(inner)


def _complete_pod(spec: Obj) -> None:
    for field, value in _POD.items():
        spec.setdefault(field, value)
    for container in [*spec.get("initContainers", []), *spec.get("containers", [])]:
        for port in container.get("ports", []):
            port.setdefault("protocol", "TCP")
        for probe in {"startupProbe", "readinessProbe", "livenessProbe"} & container.keys():
            container[probe] = _PROBE | container[probe]


def _complete_service(spec: Obj, live: Obj | None, cluster_ips: Iterator[str]) -> None:
    for port in spec.get("ports", []):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port["port"])
    if spec["type"] != "ExternalName" and not spec.get("clusterIP"):
        spec["clusterIP"] = live["spec"]["clusterIP"] if live else next(cluster_ips)
        spec["clusterIPs"] = [spec["clusterIP"]]
