"""Objects for tests of the API server."""

from typing import Any

Obj = dict[str, Any]


def config_map(name: str, *, labels: dict[str, str] | None = None, **data: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "labels": labels or {}},
        "data": data,
    }


def deployment(name: str, replicas: int = 2, **env: str) -> Obj:
    container = {
        "name": "web",
        "image": "web:1",
        "ports": [{"name": "http", "containerPort": 80}],
        "env": [{"name": key, "value": value} for key, value in env.items()],
    }
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def pod(name: str, *, owner: Obj | None = None, node: str = "node") -> Obj:
    metadata: Obj = {"name": name, "namespace": "default"}
    if owner:
        uid = owner["metadata"]["uid"]
        metadata["ownerReferences"] = [{"uid": uid, "name": "owner", "controller": True}]
    containers = [{"name": "web", "image": "web:1", "readinessProbe": {"grpc": {"port": 1}}}]
    spec = {"containers": containers} | ({"nodeName": node} if node else {})
    return {"metadata": metadata, "spec": spec}
