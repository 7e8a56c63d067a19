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

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"(?=.{1,63}$)[a-z]([-a-z0-9]*[a-z0-9])?")

_SPECS: dict[Kind, Obj] = {
    kinds.DEPLOYMENT: {
        "replicas": 1,
        "progressDeadlineSeconds": 600,
        "revisionHistoryLimit": 10,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
        },
    },
    kinds.REPLICA_SET: {"replicas": 1},
    kinds.STATEFUL_SET: {
        "replicas": 1,
        "podManagementPolicy": "OrderedReady",
        "revisionHistoryLimit": 10,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
    },
    kinds.JOB: {"parallelism": 1, "completions": 1, "backoffLimit": 6},
    kinds.SERVICE: {"type": "ClusterIP", "sessionAffinity": "None"},
}
_POD: Obj = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "serviceAccountName": "default",
}
_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}

# Fields of a spec that may change; of a kind that is not here, all may.
_MUTABLE = {
    kinds.STATEFUL_SET: {
        *("replicas", "template", "updateStrategy", "minReadySeconds", "ordinals"),
        *("persistentVolumeClaimRetentionPolicy", "revisionHistoryLimit"),
    },
}
_IMMUTABLE = {
    kinds.DEPLOYMENT: ("selector",),
    kinds.REPLICA_SET: ("selector",),
    kinds.JOB: ("selector", "template", "completions"),
    kinds.SERVICE: ("clusterIP",),
}


def without_status(kind: Kind, obj: Obj) -> Obj:
    """The object as its main resource takes it: the status belongs to the subresource."""
    if kind not in kinds.STATELESS:
        obj.pop("status", None)
    return obj


def new_cluster_ips() -> Iterator[str]:
    """127.96.0.1 and what follows."""
    return (f"127.96.{number // 250}.{number % 250 + 1}" for number in range(60_000))


def admit(kind: Kind, obj: Obj, live: Obj | None, cluster_ips: Iterator[str]) -> None:
    """Check and complete an object in place; `live` is what it replaces."""
    _drop_nulls(obj)
    _check_name(kind, obj)
    spec = obj.get("spec", {})
    for field, value in _SPECS.get(kind, {}).items():
        spec.setdefault(field, value)
    template = obj if kind == kinds.POD else spec.get("template", {})
    if kind.built_in and "spec" in template:
        _complete_pod(template["spec"])
    if kind in kinds.SCALABLE:
        _check_selector(kind, obj)
    if kind == kinds.SERVICE:
        _complete_service(spec, live, cluster_ips)
    if kind == kinds.SECRET:
        _complete_secret(obj)
    if live is None and kind == kinds.POD:
        obj["status"] = {"phase": "Pending"}
    if live is None and kind == kinds.NAMESPACE:
        obj["status"] = {"phase": "Active"}


def check_update(kind: Kind, live: Obj, new: Obj) -> None:
    """Refuse a change of what may not change."""
    name, old, spec = new["metadata"]["name"], live.get("spec", {}), new.get("spec", {})
    if kind in _MUTABLE:
        changed = [f for f in {**old, **spec} if old.get(f) != spec.get(f)]
        if not set(changed) <= _MUTABLE[kind]:
            fields = ", ".join(f"'{field}'" for field in sorted(_MUTABLE[kind]))
            what = f"updates to {kind.plural} spec for fields other than {fields} are forbidden"
            raise invalid(kind, name, f"spec: Forbidden: {what}")
    for field in _IMMUTABLE.get(kind, ()):
        if field in old and old[field] != spec.get(field):
            raise invalid(kind, name, f"spec.{field}: Invalid value: field is immutable")
    if kind == kinds.SECRET and live.get("type") != new.get("type"):
        raise invalid(kind, name, "type: Invalid value: field is immutable")
    if kind == kinds.ROLE_BINDING and live.get("roleRef") != new.get("roleRef"):
        raise invalid(kind, name, "roleRef: Invalid value: cannot change roleRef")


def _drop_nulls(value: Any) -> None:
    if isinstance(value, dict):
        for name in [name for name, inner in value.items() if inner is None]:
            del value[name]
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            _drop_nulls(inner)


def _check_name(kind: Kind, obj: Obj) -> None:
    name = obj["metadata"].get("name", "")
    if kind.group == kinds.ROLE.group and name:
        return
    if kind in (kinds.SERVICE, kinds.NAMESPACE):
        if not _LABEL.fullmatch(name):
            why = "a DNS-1035 label must consist of lower case alphanumeric characters or '-'"
            raise invalid(kind, name, f'metadata.name: Invalid value: "{name}": {why}')
    elif not _NAME.fullmatch(name) or len(name) > 253:
        why = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters"
        raise invalid(kind, name, f'metadata.name: Invalid value: "{name}": {why}')


def _check_selector(kind: Kind, obj: Obj) -> None:
    spec = obj.get("spec", {})
    wanted = spec.get("selector", {}).get("matchLabels", {})
    labels = spec.get("template", {}).get("metadata", {}).get("labels", {})
    if not spec.get("selector") or not wanted.items() <= labels.items():
        why = "Invalid value: `selector` does not match template `labels`"
        raise invalid(kind, obj["metadata"]["name"], f"spec.template.metadata.labels: {why}")


def _complete_pod(spec: Obj) -> None:
    for field, value in _POD.items():
        spec.setdefault(field, value)
    for container in [*spec.get("initContainers", []), *spec.get("containers", [])]:
        for port in container.get("ports", []):
            port.setdefault("protocol", "TCP")
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if probe in container:
                container[probe] = _PROBE | container[probe]


def _complete_service(spec: Obj, live: Obj | None, cluster_ips: Iterator[str]) -> None:
    for port in spec.get("ports", []):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port["port"])
    if spec["type"] != "ExternalName" and not spec.get("clusterIP"):
        spec["clusterIP"] = live["spec"]["clusterIP"] if live else next(cluster_ips)
        spec["clusterIPs"] = [spec["clusterIP"]]


def _complete_secret(obj: Obj) -> None:
    obj.setdefault("type", "Opaque")
    for name, text in obj.pop("stringData", {}).items():
        obj.setdefault("data", {})[name] = base64.b64encode(text.encode()).decode()
