"""What the NetworkPolicies let through, by the rules of Kubernetes.

Pods are those of the release and two strangers. A pod that no policy of a direction selects is open
in that direction; else one rule of one policy must let the connection through, at both ends.
"""

from itertools import product

import pytest

from tests.helm.cases import CASES, pool
from tests.helm.chart import Object, component, of_kind, pods, render

POLICED = [name for name in CASES if name != "no policies"]
BUNDLED = [name for name in POLICED if CASES[name].get("redis", {}).get("mode") != "external"]
WEB = {"namespace": "llm", "labels": {"app": "web"}, "address": "10.1.0.1"}
PROMETHEUS = {"namespace": "monitoring", "labels": {}, "address": "10.1.0.2"}
KEDA = {"namespace": "keda", "labels": {}, "address": "10.1.0.3"}
WORLD = {"namespace": None, "labels": {}, "address": "93.184.216.34"}


def ends(objects: list[Object]) -> dict[str, Object]:
    """An end of connections for each part of the release."""
    found = {
        component(pod): {
            "namespace": "llm",
            "labels": pod["metadata"]["labels"],
            "address": "10.0.0.1",
        }
        for pod in pods(objects)
    }
    return found | {"web": WEB, "prometheus": PROMETHEUS, "keda": KEDA, "world": WORLD}


def reach(objects: list[Object], source: Object, target: Object, port: int) -> bool:
    """Whether TCP from one end to a port of the other passes all policies."""
    return all(
        any(
            _port_matches(rule, port) and _peer_matches(rule.get(key), other)
            for policy in policies
            for rule in policy["spec"].get(direction.lower(), [])
        )
        or not policies
        for direction, key, mine, other in (
            ("Ingress", "from", target, source),
            ("Egress", "to", source, target),
        )
        for policies in [_selecting(objects, direction, mine)]
    )


def _selecting(objects: list[Object], direction: str, end: Object) -> list[Object]:
    return [
        policy
        for policy in of_kind(objects, "NetworkPolicy")
        if direction in policy["spec"]["policyTypes"]
        and end["namespace"] == "llm"
        and _labels_match(policy["spec"]["podSelector"], end["labels"])
    ]


def _labels_match(selector: Object, labels: dict[str, str]) -> bool:
    return bool(selector.get("matchLabels", {}).items() <= labels.items())


def _port_matches(rule: Object, port: int) -> bool:
    return "ports" not in rule or any(
        one["port"] == port for one in rule["ports"] if one.get("protocol", "TCP") == "TCP"
    )


def _peer_matches(peers: list[Object] | None, end: Object) -> bool:
    # NOTE: a rule without peers is for everybody; the chart must not make one with an empty list.
    assert peers != []
    return peers is None or any(_one_matches(peer, end) for peer in peers)


def _one_matches(peer: Object, end: Object) -> bool:
    if "ipBlock" in peer:
        prefix = {"10.0.0.0/8": "10.", "10.96.0.1/32": "10.96.0.1"}
        return bool(end["address"].startswith(prefix[peer["ipBlock"]["cidr"]]))
    namespace = {"kubernetes.io/metadata.name": end["namespace"]}
    return (
        end["namespace"] is not None
        and (
            _labels_match(peer["namespaceSelector"], namespace)
            if "namespaceSelector" in peer
            else end["namespace"] == "llm"
        )
        and _labels_match(peer.get("podSelector", {}), end["labels"])
    )


@pytest.mark.parametrize("case", BUNDLED)
def test_redis_is_reached_by_gateways_alone(case: str) -> None:
    objects = render(CASES[case])
    parts = ends(objects)
    found = {name for name, end in parts.items() if reach(objects, end, parts["redis"], 6379)}
    assert found == {"gateway"}
    assert not any(
        reach(objects, parts["redis"], end, port)
        for end, port in product(parts.values(), (53, 443, 6379, 50051, 50052))
    )


@pytest.mark.parametrize("case", [name for name in POLICED if "workers" in CASES[name]])
def test_workers_are_reached_by_gateways_alone_unless_more_is_asked_for(case: str) -> None:
    objects = render(CASES[case])
    parts = ends(objects)
    found = {name for name, end in parts.items() if reach(objects, end, parts["worker"], 50052)}
    inside = {"gateway", "worker", "redis", "web", "prometheus", "keda", "test"}
    asked = {"web", "prometheus", "keda"} if case == "strict policies" else set()
    assert found & inside == {"gateway"} | asked
    assert "world" not in found


def test_policies_name_the_ports_that_pods_have() -> None:
    objects = render(CASES["keda"])
    for policy in of_kind(objects, "NetworkPolicy"):
        rules = policy["spec"].get("ingress", [])
        named = {one["port"] for rule in rules for one in rule["ports"]}
        (pod,) = (pod for pod in pods(objects) if component(pod) == component(policy))
        (container,) = pod["spec"]["containers"]
        assert named == {port["containerPort"] for port in container.get("ports", [])}


def test_parts_reach_what_they_need_and_strangers_what_they_may() -> None:
    objects = render(CASES["keda"])
    parts = ends(objects)
    gateway, worker = parts["gateway"], parts["worker"]

    def who(target: Object, port: int) -> set[str]:
        return {name for name, end in parts.items() if reach(objects, end, target, port)}

    assert who(gateway, 50051) == {"worker", "web", "prometheus", "keda", "test"}
    assert who(gateway, 9090) == who(worker, 9091) == {"prometheus"}
    assert reach(objects, gateway, WORLD, 6443), "the API server"
    assert reach(objects, gateway, WORLD, 53)
    assert not reach(objects, gateway, WORLD, 80)
    assert reach(objects, worker, WORLD, 53)
    assert not reach(objects, worker, WORLD, 443)


def test_tests_reach_gateways_where_everything_else_is_denied() -> None:
    objects = render(CASES["pvc"])
    deny = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    objects.append({"kind": "NetworkPolicy", "spec": deny})
    parts = ends(objects)
    found = {
        (name, port)
        for name, end in parts.items()
        for port in (6379, 50051, 50052)
        if reach(objects, parts["test"], end, port)
    }
    assert found == {("gateway", 50051)}
    assert reach(objects, parts["test"], WORLD, 53)


def test_strict_policies_are_strict() -> None:
    objects = render(CASES["strict policies"])
    parts = ends(objects)
    gateway = parts["gateway"]
    found = {name for name, end in parts.items() if reach(objects, end, gateway, 50051)}
    assert found == {"worker", "web", "keda", "test"}
    assert not any(reach(objects, end, gateway, 9090) for end in parts.values())
    assert not reach(objects, gateway, WORLD, 443)


def test_only_a_pool_that_pulls_reaches_the_world() -> None:
    pulled = pool("pulled", model={"name": "m", "hub": {"repository": "a/b"}})
    objects = render({"workers": [pool("claimed"), pulled]})
    found = {
        pod["metadata"]["labels"]["radixgate.io/pool"]
        for pod in pods(objects)
        if component(pod) == "worker"
        and reach(objects, {"namespace": "llm", **pod["metadata"], "address": ""}, WORLD, 443)
    }
    assert found == {"pulled"}


def test_a_pull_goes_through_a_proxy() -> None:
    pulled = pool("pulled", model={"name": "m", "hub": {"repository": "a/b"}})
    to = [{"ipBlock": {"cidr": "10.0.0.0/8"}}]
    objects = render({"workers": [pulled], "networkPolicy": {"hub": {"ports": [3128], "to": to}}})
    worker = ends(objects)["worker"]
    assert reach(objects, worker, {**WORLD, "address": "10.9.9.9"}, 3128)
    assert not reach(objects, worker, WORLD, 3128)
    assert not reach(objects, worker, WORLD, 443)


def test_what_may_be_anywhere_may_be_a_pod_or_a_node() -> None:
    objects = render(CASES["external redis"] | {"workers": [pool()]})
    gateway = ends(objects)["gateway"]
    # NOTE: to Cilium pods and nodes, so a Redis or the API server there, have no address.
    for port in (443, 6379, 6443):
        rules = [
            rule
            for policy in _selecting(objects, "Egress", gateway)
            for rule in policy["spec"]["egress"]
            if port in {one["port"] for one in rule["ports"]}
        ]
        assert ["to" in rule for rule in rules] == [False], port


def test_an_external_redis_is_reached_where_it_is() -> None:
    to = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "keda"}}}]
    external = CASES["external redis"] | {
        "networkPolicy": {"externalRedis": {"to": to, "ports": [6379]}}
    }
    objects = render(external)
    gateway = ends(objects)["gateway"]
    assert reach(objects, gateway, KEDA, 6379)
    assert not reach(objects, gateway, WORLD, 6379)
