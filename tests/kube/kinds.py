"""The kinds of objects that the server knows."""

from typing import NamedTuple


class Kind(NamedTuple):
    """One kind: Kind("apps", "v1", "deployments", "Deployment", True)."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As objects name it: "v1", "apps/v1"."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """As errors name it: "pods", "deployments.apps"."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def built_in(self) -> bool:
        """False of those that a real cluster has by a custom resource definition."""
        return "." not in self.group or self.group.endswith(".k8s.io")


NAMESPACE = Kind("", "v1", "namespaces", "Namespace", namespaced=False)
NODE = Kind("", "v1", "nodes", "Node", namespaced=False)
POD = Kind("", "v1", "pods", "Pod")
SERVICE = Kind("", "v1", "services", "Service")
CONFIG_MAP = Kind("", "v1", "configmaps", "ConfigMap")
SECRET = Kind("", "v1", "secrets", "Secret")
SERVICE_ACCOUNT = Kind("", "v1", "serviceaccounts", "ServiceAccount")
CLAIM = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
EVENT = Kind("", "v1", "events", "Event")
ENDPOINTS = Kind("", "v1", "endpoints", "Endpoints")
DEPLOYMENT = Kind("apps", "v1", "deployments", "Deployment")
REPLICA_SET = Kind("apps", "v1", "replicasets", "ReplicaSet")
STATEFUL_SET = Kind("apps", "v1", "statefulsets", "StatefulSet")
DAEMON_SET = Kind("apps", "v1", "daemonsets", "DaemonSet")
CONTROLLER_REVISION = Kind("apps", "v1", "controllerrevisions", "ControllerRevision")
JOB = Kind("batch", "v1", "jobs", "Job")
CRON_JOB = Kind("batch", "v1", "cronjobs", "CronJob")
ENDPOINT_SLICE = Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
DISRUPTION_BUDGET = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
NETWORK_POLICY = Kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
INGRESS = Kind("networking.k8s.io", "v1", "ingresses", "Ingress")
ROLE = Kind("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDING = Kind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
AUTOSCALER = Kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
LEASE = Kind("coordination.k8s.io", "v1", "leases", "Lease")
SCALED_OBJECT = Kind("keda.sh", "v1alpha1", "scaledobjects", "ScaledObject")
TRIGGER_AUTHENTICATION = Kind(
    "keda.sh", "v1alpha1", "triggerauthentications", "TriggerAuthentication"
)
POD_MONITOR = Kind("monitoring.coreos.com", "v1", "podmonitors", "PodMonitor")
SERVICE_MONITOR = Kind("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor")
PROMETHEUS_RULE = Kind("monitoring.coreos.com", "v1", "prometheusrules", "PrometheusRule")

KINDS = tuple(value for value in globals().values() if isinstance(value, Kind))
BY_PATH = {(kind.group, kind.version, kind.plural): kind for kind in KINDS}
BY_NAME = {(kind.api_version, kind.kind): kind for kind in KINDS}

SCALABLE = frozenset({DEPLOYMENT, REPLICA_SET, STATEFUL_SET})
STATELESS = frozenset(  # those without a status
    {CONFIG_MAP, SECRET, SERVICE_ACCOUNT, EVENT, ENDPOINTS, CONTROLLER_REVISION, ENDPOINT_SLICE}
    | {ROLE, ROLE_BINDING, LEASE, NETWORK_POLICY}
)
SHORT_NAMES = {
    NAMESPACE: ["ns"],
    NODE: ["no"],
    POD: ["po"],
    SERVICE: ["svc"],
    CONFIG_MAP: ["cm"],
    SERVICE_ACCOUNT: ["sa"],
    CLAIM: ["pvc"],
    EVENT: ["ev"],
    ENDPOINTS: ["ep"],
    DEPLOYMENT: ["deploy"],
    REPLICA_SET: ["rs"],
    STATEFUL_SET: ["sts"],
    DAEMON_SET: ["ds"],
    DISRUPTION_BUDGET: ["pdb"],
    NETWORK_POLICY: ["netpol"],
    INGRESS: ["ing"],
    AUTOSCALER: ["hpa"],
    SCALED_OBJECT: ["so"],
}
