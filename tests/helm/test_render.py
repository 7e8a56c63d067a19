"""Each case is valid for each Kubernetes, and what it makes fits together and is safe."""

import json
import re
import shutil
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import helm_python as helm
import kubernetes_validate
import pytest
import yaml
from cloudcoil.models.keda import v1alpha1 as keda
from cloudcoil.models.prometheus_operator import v1 as prometheus_operator
from kubernetes_validate import utils
from packaging.version import Version

from tests.helm.cases import CASES, SINCE, pool
from tests.helm.chart import (
    CHART,
    Object,
    all_containers,
    component,
    containers,
    of_kind,
    pods,
    render,
)

VERSIONS = [
    version
    for version in kubernetes_validate.utils.all_versions()
    if Version(version) >= Version("1.29")
]
CUSTOM = {
    "ScaledObject": keda.ScaledObject,
    "ServiceMonitor": prometheus_operator.ServiceMonitor,
    "PodMonitor": prometheus_operator.PodMonitor,
    "PrometheusRule": prometheus_operator.PrometheusRule,
}
# Fields that are newer than the models: KEDA has this one since 2.17.
NEWER = {("spec", "fallback", "behavior")}
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def objects(case: str) -> list[Object]:
    return _rendered(case)


@cache
def _rendered(case: str) -> list[Object]:
    return render(CASES[case])


@pytest.fixture
def _schemas_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utils, "schema_contents", _schema_contents)


_schema_contents = cache(utils.schema_contents)


def test_lint_finds_nothing(case: str) -> None:
    report = helm.lint(CHART, CASES[case], strict=True)
    assert not report["errors"]
    assert [found["error"] for found in report["messages"]] == ["icon is recommended"]


@pytest.mark.usefixtures("_schemas_are_read_once")
def test_every_kubernetes_takes_it(case: str, objects: list[Object]) -> None:
    assert VERSIONS[0].startswith("1.29")
    for version in VERSIONS:
        if Version(version) < Version(SINCE.get(case, "1.29")):
            continue
        for found in objects:
            if found["kind"] not in CUSTOM:
                validate(json.dumps(found), version)


@cache
def validate(found: str, version: str) -> None:
    """An object that many cases have is validated once."""
    kubernetes_validate.validate(json.loads(found), version, strict=True)


@pytest.mark.usefixtures("_schemas_are_read_once")
def test_a_field_that_does_not_exist_is_found() -> None:
    (found,) = of_kind(render({}), "StatefulSet")
    found["spec"]["template"]["spec"]["containers"][0]["imagePullPolice"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError, match="imagePullPolice"):
        validate(json.dumps(found), VERSIONS[-1])


def test_custom_resources_are_those_of_their_operators(objects: list[Object]) -> None:
    for found in of_kind(objects, *CUSTOM):
        model = CUSTOM[found["kind"]].model_validate(found)
        known = model.model_dump(by_alias=True, exclude_none=True, mode="json")
        assert unknown_fields(found, known) <= NEWER


def unknown_fields(given: Any, known: Any, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Paths of what the model does not have, and so has dropped."""
    if isinstance(given, dict) and isinstance(known, dict):
        return {
            found
            for key, value in given.items()
            for found in (
                unknown_fields(value, known[key], (*path, key)) if key in known else {(*path, key)}
            )
        }
    if isinstance(given, list) and isinstance(known, list):
        return {
            found
            for one, other in zip(given, known, strict=True)
            for found in unknown_fields(one, other, path)
        }
    return set()


def test_a_custom_field_that_does_not_exist_is_found() -> None:
    (found,) = of_kind(render(CASES["keda"]), "ScaledObject")
    found["spec"]["triggers"][0]["metriktype"] = "Value"
    known = keda.ScaledObject.model_validate(found).model_dump(by_alias=True, exclude_none=True)
    assert unknown_fields(found, known) == NEWER | {("spec", "triggers", "metriktype")}


def assert_names_are_unique(objects: list[Object]) -> None:
    assert_once([(found["kind"], found["metadata"]["name"]) for found in objects])


def test_names_fit_and_are_unique(objects: list[Object]) -> None:
    assert_names_are_unique(objects)
    for found in objects:
        metadata = found["metadata"]
        assert DNS_LABEL.fullmatch(metadata["name"]), metadata["name"]
        assert metadata["namespace"] == "llm"
        assert all(len(value) <= 63 for value in metadata["labels"].values())


@pytest.mark.parametrize("release", ["r" * 53, "radixgate", "a-radixgate-b"])
def test_names_come_from_the_release(release: str) -> None:
    names = [found["metadata"]["name"] for found in render({}, release=release)]
    whole = release if "radixgate" in release else f"{release}-radixgate"
    assert all(name.startswith(whole[:26]) and len(name) <= 63 for name in names)


def test_long_releases_that_begin_alike_do_not_meet() -> None:
    one, other = (
        {(found["kind"], found["metadata"]["name"]) for found in render({}, release="r" * 51 + end)}
        for end in ("a", "b")
    )
    assert not one & other


SOURCES = [
    {"pvc": {"claimName": "123"}},
    {"image": {"reference": "123", "path": "456"}},
    {"hub": {"repository": "123", "claimName": "123", "tokenSecret": {"name": "1", "key": "2"}}},
]


@pytest.mark.parametrize("source", SOURCES, ids="".join)
@pytest.mark.usefixtures("_schemas_are_read_once")
def test_a_name_is_text_whatever_it_looks_like(source: Object) -> None:
    values = {
        "fullnameOverride": "gate",
        "image": {"pullSecrets": ["123"], "tag": "1.0"},
        "redis": {
            "mode": "external",
            "external": {
                "existingSecret": {"name": "123", "key": "456"},
                "caSecret": {"name": "1e3", "key": "789"},
            },
        },
        "monitoring": {part: {"enabled": True} for part in ("scrape", "rules", "dashboard")},
        "workers": [
            {
                "name": "on",
                "model": {"name": "123", **source},
                "runtimeClassName": "123",
                "priorityClassName": "123",
                "autoscaling": {"mode": "hpa"},
            }
        ],
    }
    for found in render(values, release="123", namespace="456"):
        if found["kind"] in CUSTOM:
            CUSTOM[found["kind"]].model_validate(found)
        else:
            validate(json.dumps(found), VERSIONS[-1])


def test_two_in_one_release_keep_apart(tmp_path: Path) -> None:
    above = tmp_path / "above"
    shutil.copytree(CHART, above / "charts" / "radixgate")
    dependencies = [
        {"name": "radixgate", "version": "*", "alias": name} for name in ("east", "west")
    ]
    definition = {"apiVersion": "v2", "name": "above", "version": "1.0.0"}
    (above / "Chart.yaml").write_text(yaml.safe_dump(definition | {"dependencies": dependencies}))
    with helm.Chart.load(above) as chart:
        objects = render({name: {"workers": [pool()]} for name in ("east", "west")}, of=chart)
    assert len(of_kind(objects, "Deployment")) == 4
    assert_names_are_unique(objects)
    assert_selectors_find_one(objects)


def test_pods_pass_the_restricted_profile(objects: list[Object]) -> None:
    allowed = {
        *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image"),
        *("persistentVolumeClaim", "projected", "secret"),
    }
    for pod in pods(objects):
        spec = pod["spec"]
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        assert spec["securityContext"]["runAsNonRoot"] is True
        user = spec["securityContext"].get("runAsUser")
        assert user is None or (isinstance(user, int) and user > 0)
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for volume in spec.get("volumes", []):
            assert volume.keys() - {"name"} <= allowed
        for container in containers(pod):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert not any("hostPort" in port for port in container.get("ports", []))


def test_only_gateways_have_a_token(objects: list[Object]) -> None:
    for pod in pods(objects):
        token = pod["spec"].get("automountServiceAccountToken", True)
        assert token is (component(pod) == "gateway")
        assert ("serviceAccountName" in pod["spec"]) is token


def test_a_pull_goes_by_the_proxy_of_the_pool_and_alone_has_the_token() -> None:
    hub = {"repository": "a/b", "tokenSecret": {"name": "hub"}}
    proxy = {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}
    objects = render({"workers": [pool(model={"name": "m", "hub": hub}, extraEnv=[proxy])]})
    found = {one["name"]: one["env"] for one in all_containers(objects) if "env" in one}
    token = {
        "name": "HF_TOKEN",
        "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}},
    }
    assert proxy in found["pull"]
    assert proxy in found["worker"]
    assert [name for name, env in found.items() if token in env] == ["pull"]


def test_images_are_pinned(objects: list[Object]) -> None:
    for container in all_containers(objects):
        name, _, digest = container["image"].partition("@")
        tag = name.rpartition("/")[2].partition(":")[2]
        assert tag not in {"", "latest"}
        assert not digest or re.fullmatch("sha256:[0-9a-f]{64}", digest)


def test_resources_are_asked_for_and_memory_is_bounded(objects: list[Object]) -> None:
    for container in all_containers(objects):
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        assert "memory" in container["resources"]["limits"]


def test_a_pool_says_only_what_is_other_than_the_defaults() -> None:
    objects = render({"workers": [pool(resources={"limits": {"memory": "8Gi"}})]})
    (worker,) = (one for one in all_containers(objects) if one["name"] == "worker")
    assert worker["resources"] == {
        "requests": {"cpu": "2", "memory": "4Gi"},
        "limits": {"memory": "8Gi"},
    }


def test_what_serves_is_probed(objects: list[Object]) -> None:
    for pod in pods(objects):
        for container in pod["spec"]["containers"]:
            ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
            if "grpc" in ports:
                probes = [
                    container[f"{name}Probe"] for name in ("startup", "readiness", "liveness")
                ]
                assert [probe["grpc"] for probe in probes] == [{"port": ports["grpc"]}] * 3
            elif ports:
                assert "readinessProbe" in container


def test_a_slow_model_is_waited_for() -> None:
    values = {"workers": [CASES["pvc"]["workers"][0] | {"startupSeconds": 1801}]}
    (probe,) = (
        container["startupProbe"]
        for container in all_containers(render(values))
        if container["name"] == "worker"
    )
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 1801


def test_pods_have_time_to_drain(objects: list[Object]) -> None:
    for pod in pods(objects):
        if component(pod) in {"gateway", "worker"}:
            (container,) = pod["spec"]["containers"]
            options = dict(pairwise(container["args"]))
            needed = int(options["--grace"]) + int(options.get("--notice", 0))
            assert pod["spec"]["terminationGracePeriodSeconds"] >= needed + 5


def test_replicas_are_left_to_the_autoscaler(case: str, objects: list[Object]) -> None:
    workloads = {
        found["metadata"]["name"]: found for found in of_kind(objects, "Deployment", "StatefulSet")
    }
    scalers = of_kind(objects, "ScaledObject", "HorizontalPodAutoscaler")
    targets = [found["spec"]["scaleTargetRef"]["name"] for found in scalers]
    assert len(set(targets)) == len(targets)
    for name, workload in workloads.items():
        assert ("replicas" in workload["spec"]) is (name not in targets)
    assert set(targets) <= workloads.keys()
    wanted = [
        given for given in CASES[case].get("workers", []) if "mode" in given.get("autoscaling", {})
    ]
    assert len(targets) == len(wanted)


def test_only_whole_rollouts_of_spare_capacity_lose_none(objects: list[Object]) -> None:
    for found in of_kind(objects, "Deployment"):
        update = found["spec"]["strategy"]["rollingUpdate"]
        assert (update["maxUnavailable"] == 0) is (update["maxSurge"] > 0)


def test_lists_with_keys_have_each_key_once(objects: list[Object]) -> None:
    for pod in pods(objects):
        assert_once([one["name"] for one in containers(pod)])
        assert_once([one["name"] for one in pod["spec"].get("volumes", [])])
        for container in containers(pod):
            assert_once([one["name"] for one in container.get("env", [])])
            assert_once([one["containerPort"] for one in container.get("ports", [])])
            assert_once([one["mountPath"] for one in container.get("volumeMounts", [])])
    for service in of_kind(objects, "Service"):
        assert_once([one["port"] for one in service["spec"]["ports"]])
        assert_once([one["name"] for one in service["spec"]["ports"]])


def assert_once(keys: list[Any]) -> None:
    assert len(set(keys)) == len(keys), keys


def test_mounts_have_volumes_and_no_volume_is_unused(objects: list[Object]) -> None:
    for pod in pods(objects):
        mounted = {
            mount["name"] for one in containers(pod) for mount in one.get("volumeMounts", [])
        }
        assert mounted == {volume["name"] for volume in pod["spec"].get("volumes", [])}


def test_selectors_find_what_they_mean(objects: list[Object]) -> None:
    for found in of_kind(objects, "Deployment", "StatefulSet"):
        labels = found["spec"]["template"]["metadata"]["labels"]
        assert found["spec"]["selector"]["matchLabels"].items() <= labels.items()
        selected = selected_by(objects, found["spec"]["selector"]["matchLabels"])
        assert len(selected) == 1, "two workloads would take each other's pods"
    assert_selectors_find_one(objects)
    for found in of_kind(objects, "Service"):
        (pod,) = selected_by(objects, found["spec"]["selector"])
        ports = {port["name"] for one in pod["spec"]["containers"] for port in one["ports"]}
        assert {port["targetPort"] for port in found["spec"]["ports"]} <= ports


def test_clients_find_one_gateway_or_all() -> None:
    found = [one for one in of_kind(render({}), "Service") if component(one) == "gateway"]
    ports = {one["metadata"]["name"]: one["spec"]["ports"][0] for one in found}
    assert ports["test-radixgate-gateway"] == ports["test-radixgate-gateway-headless"]
    headless = {one["metadata"]["name"]: one["spec"].get("clusterIP") for one in found}
    assert headless == {"test-radixgate-gateway": None, "test-radixgate-gateway-headless": "None"}


def assert_selectors_find_one(objects: list[Object]) -> None:
    for found in of_kind(objects, "PodDisruptionBudget"):
        assert len(selected_by(objects, found["spec"]["selector"]["matchLabels"])) == 1
    for found in of_kind(objects, "Service"):
        assert len(selected_by(objects, found["spec"]["selector"])) == 1


def selected_by(objects: list[Object], labels: dict[str, str]) -> list[Object]:
    """Pods with these labels."""
    return [pod for pod in pods(objects) if labels.items() <= pod["metadata"]["labels"].items()]


def test_gateways_look_for_the_labels_of_the_workers_services(objects: list[Object]) -> None:
    (gateway,) = (one for one in all_containers(objects) if one["name"] == "gateway")
    selector = dict(pairwise(gateway["args"]))["--discover"]
    wanted = dict(part.split("=") for part in selector.split(","))
    for service in of_kind(objects, "Service"):
        found = wanted.items() <= service["metadata"]["labels"].items()
        assert found is (component(service) == "worker")


def test_the_role_has_no_more_than_it_needs(objects: list[Object]) -> None:
    (role,) = of_kind(objects, "Role")
    (gateway,) = (one for one in all_containers(objects) if one["name"] == "gateway")
    watch = (["discovery.k8s.io"], ["endpointslices"], ["list", "watch"])
    cost = ([""], ["pods"], ["patch"])
    scaled = bool(of_kind(objects, "ScaledObject", "HorizontalPodAutoscaler"))
    assert ("--deletion-costs" in gateway["args"]) is scaled
    assert [(rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in role["rules"]] == (
        [watch, cost] if scaled else [watch]
    )
    assert not of_kind(objects, "ClusterRole", "ClusterRoleBinding")
