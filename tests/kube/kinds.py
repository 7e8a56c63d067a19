"""The kinds of objects that the server knows: those of the chart, of its cluster, and of Helm."""

from typing import NamedTuple


class Kind(NamedTuple):
    """One kind, as in Kind("apps/v1", "deployments", "Deployment", "deploy")."""

    api_version: str
    plural: str
    kind: str
    short: str = ""
    namespaced: bool = True

    @property
    def group(self) -> str:
        """ "apps"; "" of the core."""
        return self.api_version.rpartition("/")[0]

    @property
    def resource(self) -> str:
        """As errors name it: "pods", "deployments.apps"."""
        return f"{self.plural}.{self.group}".rstrip(".")


NAMESPACE = Kind("v1", "namespaces", "Namespace", "ns", namespaced=False)
POD = Kind("v1", "pods", "Pod", "po")
SERVICE = Kind("v1", "services", "Service", "svc")
CONFIG_MAP = Kind("v1", "configmaps", "ConfigMap", "cm")
SECRET = Kind("v1", "secrets", "Secret")
SERVICE_ACCOUNT = Kind("v1", "serviceaccounts", "ServiceAccount", "sa")
EVENT = Kind("v1", "events", "Event", "ev")
DEPLOYMENT = Kind("apps/v1", "deployments", "Deployment", "deploy")
REPLICA_SET = Kind("apps/v1", "replicasets", "ReplicaSet", "rs")
STATEFUL_SET = Kind("apps/v1", "statefulsets", "StatefulSet", "sts")
ENDPOINT_SLICE = Kind("discovery.k8s.io/v1", "endpointslices", "EndpointSlice")
DISRUPTION_BUDGET = Kind("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", "pdb")
NETWORK_POLICY = Kind("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy", "netpol")
ROLE = Kind("rbac.authorization.k8s.io/v1", "roles", "Role")
ROLE_BINDING = Kind("rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding")
AUTOSCALER = Kind("autoscaling/v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", "hpa")
SCALED_OBJECT = Kind("keda.sh/v1alpha1", "scaledobjects", "ScaledObject", "so")
POD_MONITOR = Kind("monitoring.coreos.com/v1", "podmonitors", "PodMonitor")
SERVICE_MONITOR = Kind("monitoring.coreos.com/v1", "servicemonitors", "ServiceMonitor")
PROMETHEUS_RULE = Kind("monitoring.coreos.com/v1", "prometheusrules", "PrometheusRule")

KINDS = tuple(value for value in globals().values() if isinstance(value, Kind))
SCALABLE = (DEPLOYMENT, REPLICA_SET, STATEFUL_SET)
