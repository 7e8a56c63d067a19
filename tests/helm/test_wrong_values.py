"""Values that cannot be meant are refused, with a message that says what to do."""

import re
from typing import Any

import helm_python as helm
import pytest

from tests.helm.cases import pool, scaled
from tests.helm.chart import CHART, render

_AT = "http://prometheus:9090"


def external(**more: Any) -> dict[str, Any]:
    return {"redis": {"mode": "external", "external": more}}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    # Typos: the schema names the place and the word.
    "typo": ({"gatway": {}}, "additional properties 'gatway' not allowed"),
    "typo inside": (
        {"gateway": {"replica": 3}},
        "at '/gateway': additional properties 'replica' not allowed",
    ),
    "typo in a pool": (
        {"workers": [pool(replica=3)]},
        "at '/workers/0': additional properties 'replica' not allowed",
    ),
    "typo in a source": (
        {"workers": [pool(model={"name": "m", "pvc": {"claim": "c"}})]},
        "at '/workers/0/model/pvc': .*missing property 'claimName'",
    ),
    "typo in autoscaling": (scaled(mod="keda"), "additional properties 'mod' not allowed"),
    # Words and numbers that are none.
    "mode": (scaled(mode="vpa"), "value must be one of 'none', 'keda', 'keda-prometheus', 'hpa'"),
    "redis mode": ({"redis": {"mode": "sentinel"}}, "must be one of 'bundled', 'external'"),
    "metric": (scaled(mode="keda", metric="hit_rate"), "must be one of 'desired_workers'"),
    "eviction": ({"workers": [pool(kv={"eviction": "fifo"})]}, "must be one of 'lru', 'cost'"),
    "kv format": ({"workers": [pool(kv={"format": "int2"})]}, "'int2' does not match pattern"),
    "kv memory": ({"workers": [pool(kv={"memory": "lots"})]}, "'lots' does not match pattern"),
    "weights": ({"workers": [pool(weights="fp4")]}, "must be one of 'float32', 'int8'"),
    "replicas": ({"gateway": {"replicas": "two"}}, "got string, want integer"),
    "no gateway": ({"gateway": {"replicas": 0}}, "minimum: got 0, want 1"),
    "root": ({"runAsUser": 0}, "at '/runAsUser': minimum: got 0, want 1"),
    "digest": ({"gateway": {"image": {"digest": "md5:0"}}}, "'md5:0' does not match pattern"),
    "short password": ({"redis": {"bundled": {"password": "secret"}}}, "does not match pattern"),
    "not a redis": (external(url="http://redis"), "'http://redis' does not match pattern"),
    "pool without a name": ({"workers": [{"model": {"name": "m"}}]}, "missing property 'name'"),
    "pool without a model": ({"workers": [{"name": "a"}]}, "missing property 'model'"),
    "long name of a pool": ({"workers": [pool("p" * 21)]}, "does not match pattern"),
    "path above the model": (
        {"workers": [pool(model={"name": "m", "pvc": {"claimName": "c", "path": "../x"}})]},
        "'../x' does not match pattern",
    ),
    "typo in resources": (
        {"workers": [pool(resources={"request": {}})]},
        "additional properties 'request' not allowed",
    ),
    "peer of no kind": (
        {"networkPolicy": {"clients": [{"namespace": "web"}]}},
        "additional properties 'namespace' not allowed",
    ),
    "label of ours": (
        {"gateway": {"podLabels": {"app.kubernetes.io/component": "x"}}},
        "'app.kubernetes.io/component'",
    ),
    "annotation of ours": (
        {"workers": [pool(podAnnotations={"radixgate.io/model": "x"})]},
        "'radixgate.io/model'",
    ),
    # Null takes a default away, and a rule of a policy without ports is for all of them.
    "no image": ({"image": None}, "missing property 'image'"),
    "no external redis": ({"redis": {"external": None}}, "missing property 'external'"),
    "no monitoring": ({"monitoring": None}, "missing property 'monitoring'"),
    "no way to the hub": ({"networkPolicy": {"hub": None}}, "missing property 'hub'"),
    "ways to the hub without ports": (
        {"networkPolicy": {"hub": {"ports": None}}},
        "at '/networkPolicy/hub': missing property 'ports'",
    ),
    # What does not go together: asked, found, to do.
    "two sources": (
        {
            "workers": [
                pool(model={"name": "m", "pvc": {"claimName": "c"}, "hub": {"repository": "a/b"}})
            ]
        },
        "worker pool chat: one source of the model was expected, pvc, image or hub; "
        "found pvc and hub",
    ),
    "no source": (
        {"workers": [pool(model={"name": "m"})]},
        "worker pool chat: one source of the model was expected, pvc, image or hub; found none",
    ),
    "two pools with a name": (
        {"workers": [pool(), pool()]},
        "two worker pools are named chat; give each a name of its own",
    ),
    "replicas beside an autoscaler": (
        {"workers": [pool(replicas=3, autoscaling={"mode": "hpa"})]},
        "worker pool chat has replicas: 3 and autoscaling.mode: hpa, .* leave out replicas",
    ),
    "bounds": (
        scaled(mode="keda", minReplicas=5),
        "autoscaling.minReplicas is 5, more than maxReplicas, 4; raise the one or lower the other",
    ),
    "zero without keda": (
        scaled(mode="hpa", scaleToZero=True),
        "scaleToZero needs KEDA to ask the gateways, but the mode is hpa; set mode: keda",
    ),
    "zero without an autoscaler": (
        scaled(scaleToZero=True),
        "but the mode is none; set mode: keda",
    ),
    "zero by prometheus": (
        scaled(mode="keda-prometheus", prometheusAddress=_AT, scaleToZero=True),
        "but the mode is keda-prometheus; set mode: keda",
    ),
    "no prometheus": (
        scaled(mode="keda-prometheus"),
        "asks Prometheus, but nothing says where it is; set autoscaling.prometheusAddress",
    ),
    "no target": (
        scaled(mode="keda-prometheus", prometheusAddress=_AT, metric="miss_rate"),
        "autoscaling by miss_rate needs to know what that should be, .* set autoscaling.target",
    ),
    "a model that is no label": (
        {
            "workers": [
                pool(
                    model={"name": "Qwen/Qwen3", "pvc": {"claimName": "c"}},
                    autoscaling={"mode": "hpa"},
                )
            ]
        },
        "must be a label's value, which Qwen/Qwen3 is not; give the model another model.name",
    ),
    "one model scaled twice": (
        {
            "workers": [
                pool("a", autoscaling={"mode": "keda"}),
                pool("b", autoscaling={"mode": "keda"}),
            ]
        },
        "worker pools a and b both scale by what model Qwen3-0.6B needs, .* autoscale one of them",
    ),
    "int8 weights on a gpu": (
        {"workers": [pool(weights="int8", gpu={"enabled": True})]},
        "has gpu.enabled and weights: int8, which only a CPU keeps; leave out weights",
    ),
    "kv beyond the memory": (
        {"workers": [pool(kv={"memory": "4GiB"})]},
        "worker pool chat: kv.memory is 4GiB, and the memory limit of 4Gi must hold the model as "
        "well; raise resources.limits.memory or lower kv.memory",
    ),
    "less than the request of the defaults": (
        {"workers": [pool(resources={"limits": {"memory": "2Gi"}})]},
        "worker pool chat: resources.requests.memory is 4Gi, more than limits.memory, 2Gi; lower",
    ),
    "limit of a gateway": (
        {"gateway": {"resources": {"limits": {"memory": 500_000_000}}}},
        "gateway: resources.requests.memory is 1Gi, more than limits.memory",
    ),
    "latest": ({"image": {"tag": "latest"}}, "image.tag is latest, .* give the tag of a release"),
    "latest in a pool": (
        {"workers": [pool(image={"tag": "latest"})]},
        "worker pool chat: image.tag is latest",
    ),
    "latest valkey": (
        {"redis": {"bundled": {"image": {"tag": "latest"}}}},
        "redis.bundled.image.tag is latest",
    ),
    "external nowhere": (
        external(),
        "redis.mode is external, but nothing says where it is; set redis.external.url",
    ),
    "external twice": (
        external(url="redis://r:6379", existingSecret={"name": "s"}),
        "has url and existingSecret.name, and only one can be right; leave out one",
    ),
    "external but bundled": (
        {"redis": {"external": {"url": "redis://r:6379"}}},
        "redis.external is given, but redis.mode is bundled; set redis.mode: external",
    ),
    "password in a url": (
        external(url="redis://:secret@r:6379"),
        "anybody who may see the Deployment could read; put the URL into a Secret",
    ),
    "authority without tls": (
        external(url="redis://r:6379", caSecret={"name": "ca"}),
        "caSecret is for TLS, but redis.external.url is redis://r:6379; use rediss://HOST:PORT",
    ),
    "a load balancer for nobody": (
        {"gateway": {"service": {"type": "LoadBalancer"}}},
        "networkPolicy.clients lets nobody in from outside the cluster; add an ipBlock",
    ),
    "redis among the options": (
        {"gateway": {"extraArgs": ["--redis", "redis://:secret@r:6379"]}},
        "gateway.extraArgs has --redis, which the chart sets itself",
    ),
    "two passwords": (
        {"redis": {"bundled": {"password": "p" * 16, "existingSecret": "s"}}},
        "redis.bundled has password and existingSecret, and only one can be right; leave out one",
    ),
    "option of the chart": (
        {"gateway": {"extraArgs": ["--port=1"]}},
        "gateway.extraArgs has --port, which the chart sets itself; use the value for it",
    ),
    "option of the chart in a pool": (
        {"workers": [pool(extraArgs=["--kv-memory", "1GiB"])]},
        "worker pool chat.extraArgs has --kv-memory, which the chart sets itself",
    ),
    "variable of the chart": (
        {"gateway": {"extraEnv": [{"name": "RADIXGATE_REDIS", "value": "x"}]}},
        "gateway.extraEnv has RADIXGATE_REDIS, which is set already",
    ),
    "variable twice": (
        {"workers": [pool(extraEnv=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}])]},
        "worker pool chat.extraEnv has A, which is set already",
    ),
    "a pool's own among the defaults": (
        {"workerDefaults": {"model": {"name": "m"}}},
        "workerDefaults has name or model, .* move them to the entries of workers",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_values_are_refused_with_a_reason(what: str) -> None:
    values, message = WRONG[what]
    with pytest.raises(helm.HelmError) as refusal:
        render(values)
    assert re.search(message, str(refusal.value).replace("\n", " ")), str(refusal.value)


def test_image_volumes_need_a_kubernetes_that_has_them(capfd: pytest.CaptureFixture[str]) -> None:
    values = {"workers": [pool(model={"name": "m", "image": {"reference": "a/b:1"}})]}
    # NOTE: lint, the only one that can be told a version, logs what templates refuse.
    helm.lint(CHART, values, kube_version="v1.32.0")
    assert "this cluster has v1.32.0; use model.pvc or model.hub" in capfd.readouterr().err
    helm.lint(CHART, values, kube_version="v1.33.0")
    assert "image volume" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("kv", "limit"),
    [
        ("999MB", "1G"),
        ("1023MiB", "1Gi"),
        ("2.9GiB", "3Gi"),
        ("999K", "1000000"),
        ("1Gi", "1.1Gi"),
        ("1GiB", 1_100_000_000),
    ],
)
def test_sizes_are_compared_whatever_their_units(kv: str, limit: str | int) -> None:
    resources: dict[str, Any] = {"requests": {"memory": "1k"}, "limits": {"memory": limit}}
    assert render({"workers": [pool(kv={"memory": kv}, resources=resources)]})
    resources["limits"] = {"memory": kv.removesuffix("B").replace("K", "k")}
    with pytest.raises(helm.HelmError, match=f"kv.memory is {kv}"):
        render({"workers": [pool(kv={"memory": kv}, resources=resources)]})


@pytest.mark.parametrize("release", ["1st", "a.b"])
def test_a_release_that_cannot_begin_names_is_refused(release: str) -> None:
    message = f"none can begin with {release}-radixgate; set fullnameOverride"
    with pytest.raises(helm.HelmError, match=message):
        render({}, release=release)
    assert render({"fullnameOverride": "gate"}, release=release)


def test_a_chart_above_may_hand_down_globals() -> None:
    assert render({"global": {"anything": 1}})
