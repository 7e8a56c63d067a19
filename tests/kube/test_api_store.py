"""What the store promises of one object: versions, deletion, collection, ownership, patches."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube import kinds
from tests.kube.errors import ApiError
from tests.kube.examples import config_map, deployment, pod
from tests.kube.fields import fields_of, object_of, patched
from tests.kube.store import Store

Obj = dict[str, Any]

STRATEGIC = "application/strategic-merge-patch+json"


@pytest.fixture
def store() -> Store:
    return Store()


def versions(obj: Obj) -> tuple[int, int]:
    return int(obj["metadata"]["resourceVersion"]), obj["metadata"]["generation"]


def test_every_write_has_a_version_and_a_changed_spec_a_generation(store: Store) -> None:
    obj = store.create(kinds.DEPLOYMENT, deployment("a") | {"status": {"replicas": 9}})
    assert "status" not in obj
    first, _ = versions(obj)
    obj["status"] = {"replicas": 1}
    assert versions(store.replace(kinds.DEPLOYMENT, obj)) == (first, 1)  # nothing that is its own
    obj = store.replace(kinds.DEPLOYMENT, obj, subresource="status")
    assert versions(obj) == (first + 1, 1)
    assert obj["status"] == {"replicas": 1}
    obj["spec"]["replicas"] = 5
    assert versions(store.replace(kinds.DEPLOYMENT, obj, subresource="status")) == (first + 1, 1)
    obj = store.replace(kinds.DEPLOYMENT, obj)
    assert versions(obj) == (first + 2, 2)


def test_a_stale_version_or_another_uid_is_a_conflict(store: Store) -> None:
    old = store.create(kinds.CONFIG_MAP, config_map("a"))
    store.replace(kinds.CONFIG_MAP, old | {"data": {"a": "b"}})
    with pytest.raises(ApiError, match="has been modified") as stale:
        store.replace(kinds.CONFIG_MAP, old)
    assert (stale.value.code, stale.value.reason) == (409, "Conflict")
    with pytest.raises(ApiError, match="uid"):
        store.replace(kinds.CONFIG_MAP, config_map("a") | {"metadata": {"name": "a", "uid": "x"}})


def test_what_the_caller_holds_is_not_what_the_store_holds(store: Store) -> None:
    given = config_map("a", b="1")
    created = store.create(kinds.CONFIG_MAP, given)
    for held in (given, created, store.get(kinds.CONFIG_MAP, "default", "a") or {}):
        held["data"]["b"] = "2"
    assert store.list(kinds.CONFIG_MAP)[0]["data"] == {"b": "1"}


def test_what_is_wrong_is_refused(store: Store) -> None:
    with pytest.raises(ApiError, match='"b" not found'):
        store.create(kinds.CONFIG_MAP, {"metadata": {"name": "a", "namespace": "b"}})
    with pytest.raises(ApiError, match="already exists"):
        store.create(kinds.NAMESPACE, {"metadata": {"name": "default"}})


def test_defaults_and_cluster_addresses(store: Store) -> None:
    spec = {"selector": {"a": "b"}, "ports": [{"port": 80}]}
    first = store.create(kinds.SERVICE, {"metadata": {"name": "a"}, "spec": spec})
    none = {"metadata": {"name": "b"}, "spec": {**spec, "clusterIP": "None"}}
    assert store.create(kinds.SERVICE, none)["spec"]["clusterIP"] == "None"
    assert first["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    address = first["spec"].pop("clusterIP")
    assert store.replace(kinds.SERVICE, first)["spec"]["clusterIP"] == address
    assert store.create(kinds.POD, pod("p"))["spec"]["restartPolicy"] == "Always"


def test_null_is_as_good_as_absent(store: Store) -> None:
    given = deployment("a")
    given["metadata"] |= {"annotations": None, "creationTimestamp": None}
    given["spec"] |= {"replicas": None}
    for made in (store.create(kinds.DEPLOYMENT, given), store.replace(kinds.DEPLOYMENT, given)):
        assert "annotations" not in made["metadata"]
        assert made["spec"]["replicas"] == 1


def test_pods_are_deleted_gracefully(store: Store) -> None:
    store.create(kinds.POD, pod("a"))
    store.delete(kinds.POD, "default", "a")
    (left,) = store.list(kinds.POD)
    assert left["metadata"]["deletionGracePeriodSeconds"] == 30
    store.delete(kinds.POD, "default", "a")
    assert store.get(kinds.POD, "default", "a")
    store.delete(kinds.POD, "default", "a", grace=0)
    assert store.get(kinds.POD, "default", "a") is None
    store.create(kinds.POD, pod("unscheduled", node=""))
    store.delete(kinds.POD, "default", "unscheduled")
    assert store.list(kinds.POD) == []


def test_dependents_go_with_their_owner(store: Store) -> None:
    owner = store.create(kinds.DEPLOYMENT, deployment("a"))
    store.create(kinds.POD, pod("mine", owner=owner, node=""))
    store.create(kinds.POD, pod("running", owner=owner))
    store.create(kinds.POD, pod("another", node=""))
    store.delete(kinds.DEPLOYMENT, "default", "a")
    left = {obj["metadata"]["name"]: obj["metadata"] for obj in store.list(kinds.POD)}
    assert left.keys() == {"another", "running"}
    assert "deletionTimestamp" in left["running"]


# Server-side apply

applies = st.lists(
    st.tuples(
        st.sampled_from(("helm", "kubectl", "hand")),
        st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), min_size=1),
    ),
    min_size=1,
)


class Shared:
    """The model: keys with a value each, of a map; and those of a list, whose items stay while
    someone has them, though the value may have gone with who set it."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.owners: dict[str, set[str]] = {key: set() for key in "abc"}
        self.holders: dict[str, set[str]] = {key: set() for key in "abc"}

    def written(self, manager: str, wanted: dict[str, str], *, applied: bool) -> None:
        for key in "abc":
            if applied:
                self.owners[key].discard(manager)
                self.holders[key].discard(manager)
        for key, value in wanted.items():
            changed = self.values.get(key) != value
            if changed:
                self.owners[key].clear()
            if applied or changed:
                self.owners[key].add(manager)
            if applied or key not in self.items:
                self.holders[key].add(manager)
            self.values[key] = value
        self.values = {key: value for key, value in self.values.items() if self.owners[key]}
        self.items = {key for key in "abc" if self.holders[key] or self.owners[key]}

    items: frozenset[str] | set[str] = frozenset()


@given(applies)
def test_what_someone_applies_stays(steps: list[tuple[str, dict[str, str]]]) -> None:
    store, model = Store(), Shared()
    store.create(kinds.DEPLOYMENT, deployment("d"), manager="nobody")
    for manager, wanted in steps:
        if manager == "hand":  # does not apply, but replaces
            obj = store.get(kinds.DEPLOYMENT, "default", "d") or {}
            obj["metadata"].setdefault("annotations", {}).update(wanted)
            container = obj["spec"]["template"]["spec"]["containers"][0]
            there = {one["name"]: one for one in container.get("env", [])}
            there |= {key: {"name": key, "value": value} for key, value in wanted.items()}
            container["env"] = list(there.values())
            store.replace(kinds.DEPLOYMENT, obj, manager="hand")
        else:
            obj = deployment("d", **wanted)
            obj["metadata"]["annotations"] = wanted
            store.apply(kinds.DEPLOYMENT, obj, manager=manager, force=True)
        model.written(manager, wanted, applied=manager != "hand")
        live = store.get(kinds.DEPLOYMENT, "default", "d") or {}
        env = live["spec"]["template"]["spec"]["containers"][0].get("env", [])
        assert live["metadata"].get("annotations", {}) == model.values
        assert {one["name"]: one.get("value") for one in env} == {
            key: model.values.get(key) for key in model.items
        }


def test_apply_tells_conflicts_by_manager_and_field(store: Store) -> None:
    store.apply(kinds.DEPLOYMENT, deployment("a", X="1"), manager="helm")
    with pytest.raises(ApiError) as refused:
        store.apply(kinds.DEPLOYMENT, deployment("a", replicas=5, X="2"), manager="kubectl")
    env = '.spec.template.spec.containers[name="web"].env[name="X"].value'
    for field in (".spec.replicas", env):
        assert f'conflict with "helm": {field}' in refused.value.message
    store.apply(kinds.DEPLOYMENT, deployment("a", replicas=5), manager="kubectl", force=True)
    with pytest.raises(ApiError, match=r'conflict with "kubectl": .spec.replicas'):
        store.apply(kinds.DEPLOYMENT, deployment("a", X="1"), manager="helm")


def test_who_changes_a_field_takes_it_over(store: Store) -> None:
    obj, _ = store.apply(kinds.CONFIG_MAP, config_map("a", b="1"), manager="helm")
    store.replace(kinds.CONFIG_MAP, obj | {"data": {"b": "2"}}, manager="hand")
    with pytest.raises(ApiError, match=r'with 1 conflicts: conflict with "hand": .data.b'):
        store.apply(kinds.CONFIG_MAP, config_map("a", b="3"), manager="kubectl")


def test_replicas_that_nobody_applies_any_more_stay_with_who_scaled(store: Store) -> None:
    store.apply(kinds.DEPLOYMENT, deployment("a"), manager="helm")
    scaled = store.get(kinds.DEPLOYMENT, "default", "a") or {}
    scaled["spec"]["replicas"] = 7
    store.replace(kinds.DEPLOYMENT, scaled, manager="autoscaler")
    applied = deployment("a")
    del applied["spec"]["replicas"]
    obj, new = store.apply(kinds.DEPLOYMENT, applied, manager="helm")
    assert (obj["spec"]["replicas"], new) == (7, False)
    again, _ = store.apply(kinds.DEPLOYMENT, applied, manager="helm")
    assert again == obj  # and has no new version


def test_applied_ports_are_told_apart_by_number_and_protocol(store: Store) -> None:
    store.apply(kinds.DEPLOYMENT, deployment("a"), manager="helm")
    live = store.get(kinds.DEPLOYMENT, "default", "a") or {}
    ports = live["spec"]["template"]["spec"]["containers"][0]["ports"]
    ports.append({"containerPort": 80, "protocol": "UDP"})
    store.replace(kinds.DEPLOYMENT, live, manager="other")
    obj, _ = store.apply(kinds.DEPLOYMENT, deployment("a"), manager="helm")
    found = obj["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert [(port["containerPort"], port["protocol"]) for port in found] == [
        (80, "TCP"),
        (80, "UDP"),
    ]


def test_lists_without_keys_are_replaced_as_a_whole(store: Store) -> None:
    for numbers in ([1, 2], [3]):
        obj: Obj = {"metadata": {"name": "a"}, "spec": {"triggers": [{"n": n} for n in numbers]}}
        store.apply(kinds.SCALED_OBJECT, obj, manager="m")
    (obj,) = store.list(kinds.SCALED_OBJECT)
    assert obj["spec"]["triggers"] == [{"n": 3}]


# Fields and patches

environments = st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"))
json_values = st.recursive(
    st.one_of(st.integers(), st.text(max_size=3), st.lists(st.integers(), max_size=2)),
    lambda inner: st.dictionaries(st.sampled_from(("a", "b", "spec")), inner, max_size=3),
)


@given(environments, json_values)
def test_an_object_is_what_its_fields_make(env: dict[str, str], value: Any) -> None:
    obj = deployment("d", **env) | {"data": value}
    obj["spec"]["template"]["spec"]["containers"][0]["ports"][0]["protocol"] = "TCP"
    assert object_of(fields_of(obj)) == obj
    assert object_of(fields_of(obj, keyed=False)) == obj


def test_strategic_merge_merges_items_by_their_keys() -> None:
    patch: Any = {
        "spec": {
            "replicas": None,
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "web",
                            "image": "web:2",
                            "env": [{"name": "A", "$patch": "delete"}, {"name": "C", "value": "3"}],
                        }
                    ]
                }
            },
        },
    }
    live = deployment("a", A="1", B="2")
    result = patched(live, patch, STRATEGIC)
    (container,) = result["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "web:2"
    assert [one["name"] for one in container["env"]] == ["B", "C"]
    assert "replicas" not in result["spec"]


def test_merge_patches_replace_lists_and_others_are_refused() -> None:
    patch = {"spec": {"triggers": [{"type": "b"}], "x": None}}
    live = {"spec": {"triggers": [{"type": "a"}], "x": 1, "y": 2}}
    result = patched(live, patch, "application/merge-patch+json")
    assert result == {"spec": {"triggers": [{"type": "b"}], "y": 2}}
    with pytest.raises(ApiError) as refused:
        patched(live, patch, "application/json-patch+json")
    assert refused.value.code == 415
