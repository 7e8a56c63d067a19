"""Deployments, ReplicaSets, StatefulSets and EndpointSlices on a store; the test is the kubelet."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.kube import deployments, endpoints, kinds, sets
from tests.kube.objects import condition, holds, set_condition
from tests.kube.sets import DELETION_COST, victim_order
from tests.kube.store import Obj, Store


def workload(image: str, replicas: int = 3, **spec: Any) -> Obj:
    labels = {"app": "x"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": image}]},
    }
    return {
        "metadata": {"name": "x", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        | spec,
    }


def pods(store: Store) -> list[Obj]:
    return store.list(kinds.POD)


def images(store: Store) -> list[str]:
    return sorted(pod["spec"]["containers"][0]["image"] for pod in pods(store))


def report(store: Store, pod: Obj, ready: bool) -> None:
    """What a kubelet says of a pod."""
    pod["spec"]["nodeName"] = "n"
    pod = store.replace(kinds.POD, pod)
    pod["status"] |= {"phase": "Running", "podIP": "127.1.1.1"}
    set_condition(pod, "Ready", ready)
    store.replace(kinds.POD, pod, subresource="status")


def remove(store: Store) -> None:
    """A kubelet whose processes end at once."""
    for pod in pods(store):
        if "deletionTimestamp" in pod["metadata"]:
            store.delete(kinds.POD, "default", pod["metadata"]["name"], grace=0)


def settle(store: Store, rounds: int = 30) -> None:
    """Reconcile while every pod becomes ready, and goes, at once."""
    for _ in range(rounds):
        deployments.reconcile(store)
        sets.reconcile(store)
        for pod in pods(store):
            report(store, pod, True)
        remove(store)


def change(store: Store, kind: kinds.Kind, image: str) -> None:
    obj = store.get(kind, "default", "x")
    assert obj
    obj["spec"]["template"]["spec"]["containers"][0]["image"] = image
    store.replace(kind, obj)


def test_a_deployment_rolls_and_rolls_back_to_the_same_replica_set() -> None:
    store = Store()
    store.create(kinds.DEPLOYMENT, workload("one"))
    settle(store)
    first = store.list(kinds.REPLICA_SET)[0]["metadata"]["name"]
    change(store, kinds.DEPLOYMENT, "two")
    settle(store)
    assert images(store) == ["two"] * 3
    change(store, kinds.DEPLOYMENT, "one")
    settle(store)
    assert images(store) == ["one"] * 3
    wanted = {one["metadata"]["name"]: one for one in store.list(kinds.REPLICA_SET)}
    assert len(wanted) == 2
    assert wanted[first]["spec"]["replicas"] == 3
    deployment = store.get(kinds.DEPLOYMENT, "default", "x")
    assert deployment
    status, generation = deployment["status"], deployment["metadata"]["generation"]
    assert (status["observedGeneration"], status["updatedReplicas"]) == (generation, 3)
    assert (status["availableReplicas"], status["unavailableReplicas"]) == (3, 0)
    assert holds(deployment, "Available")
    assert condition(deployment, "Progressing")["reason"] == "NewReplicaSetAvailable"
    before = store.revision
    settle(store, 3)
    assert store.revision == before, "nothing changes, and yet something is written"


def test_a_rollout_that_does_not_get_ready_keeps_the_old_pods_and_says_so() -> None:
    store = Store()
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    store.create(kinds.DEPLOYMENT, workload("one", strategy=rolling))
    settle(store)
    change(store, kinds.DEPLOYMENT, "broken")
    for _ in range(10):
        deployments.reconcile(store)
        sets.reconcile(store)
    assert images(store) == ["broken", "one", "one", "one"]
    deployment = store.get(kinds.DEPLOYMENT, "default", "x") or {}
    assert holds(deployment, "Available")
    assert condition(deployment, "Progressing")["reason"] == "ReplicaSetUpdated"


def test_the_old_pod_with_the_lowest_cost_goes_first() -> None:
    store = Store()
    store.create(kinds.DEPLOYMENT, workload("one", 4))
    settle(store)
    costs = dict(zip((pod["metadata"]["name"] for pod in pods(store)), (5, -7, 0, 3), strict=True))
    for pod in pods(store):
        cost = costs[pod["metadata"]["name"]]
        if cost:
            pod["metadata"].setdefault("annotations", {})[DELETION_COST] = str(cost)
        store.replace(kinds.POD, pod)
    deployment = store.get(kinds.DEPLOYMENT, "default", "x") or {}
    store.replace(kinds.DEPLOYMENT, deployment | {"spec": deployment["spec"] | {"replicas": 2}})
    settle(store)
    assert sorted(costs[pod["metadata"]["name"]] for pod in pods(store)) == [3, 5]


@given(st.permutations(range(7)))
def test_the_order_of_victims(order: list[int]) -> None:
    def pod(node: str, phase: str, ready: str, cost: int, restarts: int, born: int) -> Obj:
        conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": ready}]
        return {
            "metadata": {
                "annotations": {DELETION_COST: str(cost)},
                "creationTimestamp": f"2026-01-01T00:00:{born:02}Z",
            },
            "spec": {"nodeName": node},
            "status": {
                "phase": phase,
                "conditions": conditions if ready else [],
                "containerStatuses": [{"restartCount": restarts}],
            },
        }

    early, late = "2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"
    sequence = [
        pod("", "Running", early, 9, 0, 0),  # on no node
        pod("n", "Pending", early, 9, 0, 0),
        pod("n", "Running", "", 9, 0, 0),  # not ready
        pod("n", "Running", early, 0, 0, 0),  # worth less
        pod("n", "Running", late, 1, 0, 0),  # ready for less time
        pod("n", "Running", early, 1, 1, 0),  # restarted more
        pod("n", "Running", early, 1, 0, 1),  # younger
    ]
    shuffled = [sequence[index] for index in order]
    assert sorted(shuffled, key=victim_order) == sequence


def test_a_stateful_set_goes_in_order() -> None:
    store = Store()
    store.create(kinds.STATEFUL_SET, workload("one", serviceName="x"))
    seen = []
    for _ in range(4):
        sets.reconcile(store)
        seen.append([pod["metadata"]["name"] for pod in pods(store)])
        for pod in pods(store):
            report(store, pod, True)
    assert seen == [["x-0"], ["x-0", "x-1"], ["x-0", "x-1", "x-2"], ["x-0", "x-1", "x-2"]]
    change(store, kinds.STATEFUL_SET, "two")
    replaced = []
    for _ in range(12):
        sets.reconcile(store)
        replaced += [
            pod["metadata"]["name"] for pod in pods(store) if "deletionTimestamp" in pod["metadata"]
        ]
        remove(store)
        for pod in pods(store):
            report(store, pod, True)
    assert replaced == ["x-2", "x-1", "x-0"]
    assert images(store) == ["two"] * 3
    status = (store.get(kinds.STATEFUL_SET, "default", "x") or {})["status"]
    assert status["currentRevision"] == status["updateRevision"]
    assert status["updatedReplicas"] == status["currentReplicas"] == 3


def endpoint(store: Store) -> list[tuple[bool, bool, bool]]:
    endpoints.reconcile(store)
    (found,) = store.list(kinds.ENDPOINT_SLICE)
    return [
        (one["conditions"]["ready"], one["conditions"]["serving"], one["conditions"]["terminating"])
        for one in found["endpoints"]
    ]


def test_an_endpoint_from_its_address_to_its_end() -> None:
    store = Store()
    labels = {"team": "a"}
    ports = [{"name": "grpc", "port": 80, "targetPort": "grpc"}]
    service = {
        "metadata": {"name": "x", "labels": labels},
        "spec": {"selector": {"app": "x"}, "clusterIP": "None", "ports": ports},
    }
    store.create(kinds.SERVICE, service)
    container = {"name": "c", "image": "one", "ports": [{"name": "grpc", "containerPort": 50052}]}
    pod = {"metadata": {"name": "p", "labels": {"app": "x"}}, "spec": {"containers": [container]}}
    store.create(kinds.POD, pod)
    assert endpoint(store) == []  # it has no address yet
    report(store, pods(store)[0], False)
    assert endpoint(store) == [(False, False, False)]
    report(store, pods(store)[0], True)
    assert endpoint(store) == [(True, True, False)]
    (found,) = store.list(kinds.ENDPOINT_SLICE)
    assert found["metadata"]["labels"].items() >= {
        "team": "a", "kubernetes.io/service-name": "x", "service.kubernetes.io/headless": "",
    }.items()  # fmt: skip
    assert found["ports"] == [{"name": "grpc", "port": 50052, "protocol": "TCP"}]
    assert found["endpoints"][0]["targetRef"]["uid"] == pods(store)[0]["metadata"]["uid"]
    store.delete(kinds.POD, "default", "p")
    assert endpoint(store) == [(False, True, True)]
    remove(store)
    assert endpoint(store) == []
