"""What the server adds to an object: the defaults on which clients and controllers rely.

They are the real ones, but for rolling updates: those are bounded by numbers, not by a quarter.
"""

from collections.abc import Iterator
from typing import Any

from tests.kube import kinds
from tests.kube.kinds import Kind

Obj = dict[str, Any]

_ROLLING = {"maxUnavailable": 0, "maxSurge": 1}
_SPECS: dict[Kind, Obj] = {
    kinds.DEPLOYMENT: {
        "replicas": 1,
        "progressDeadlineSeconds": 600,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": _ROLLING},
    },
    kinds.REPLICA_SET: {"replicas": 1},
    kinds.STATEFUL_SET: {
        "replicas": 1,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
    },
    kinds.SERVICE: {"type": "ClusterIP", "ports": []},
}
_POD: Obj = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "serviceAccountName": "default",
}


def complete(kind: Kind, obj: Obj, live: Obj, cluster_ips: Iterator[str]) -> None:
    """Complete an object in place; `live` is what it replaces, or empty."""
    spec = obj.get("spec", {})
    spec |= _SPECS.get(kind, {}) | spec
    if kind == kinds.POD or kind in kinds.SCALABLE:
        pod = spec if kind == kinds.POD else spec["template"]["spec"]
        pod |= _POD | pod
    if kind == kinds.SERVICE:
        spec["ports"] = [
            {"protocol": "TCP", "targetPort": port["port"]} | port for port in spec["ports"]
        ]
        if "clusterIP" not in spec:
            spec["clusterIP"] = live["spec"]["clusterIP"] if live else next(cluster_ips)
