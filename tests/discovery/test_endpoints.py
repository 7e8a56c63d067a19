"""The merge of slices, against models that look at everything each time."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fleet.discovery.endpoints import Endpoint, Settling, Slices, endpoints_of, host_of
from tests.discovery.slices import Pod, slice_of

UIDS = st.sampled_from(["u1", "u2", "u3", "u4"])
CONDITION = st.sampled_from([True, False, None])
PODS = st.builds(
    Pod,
    uid=UIDS,
    name=st.sampled_from(["a", "b"]),
    address=st.sampled_from(["", "127.0.0.1", "127.0.0.2", "fd00::1", "FD00:0::1"]),
    ready=CONDITION,
    terminating=CONDITION,
)
SLICES = st.builds(
    slice_of, st.sampled_from(["s1", "s2", "s3"]), st.lists(PODS), uid=st.sampled_from(["x", "y"])
)
KINDS = st.sampled_from(["ADDED", "MODIFIED", "DELETED"])


def slowly(slices: Mapping[str, Any]) -> dict[str, tuple[set[str], bool, bool, bool]]:
    """By UID: addresses, ready, serving, terminating; each looked for in all entries."""
    entries = [entry for each in slices.values() for entry in each["endpoints"] or []]
    found = {}
    for uid in {entry["targetRef"]["uid"] for entry in entries}:
        mine = [entry for entry in entries if entry["targetRef"]["uid"] == uid]
        found[uid] = (
            {address.lower().replace(":0::", "::") for one in mine for address in one["addresses"]},
            any(one["conditions"].get("ready", True) for one in mine),
            any(one["conditions"].get("serving", True) for one in mine),
            any(one["conditions"].get("terminating", False) for one in mine),
        )
    return found


def shown(endpoints: Mapping[str, Endpoint]) -> dict[str, tuple[set[str], bool, bool, bool]]:
    return {
        uid: (set(pod.addresses), pod.ready, pod.serving, pod.terminating)
        for uid, pod in endpoints.items()
    }


@given(
    start=st.lists(SLICES, max_size=3),
    events=st.lists(st.tuples(KINDS, SLICES)),
    later=st.lists(SLICES, max_size=3),
)
def test_slices_are_merged_by_the_uids_of_pods(
    start: list[Any], events: list[tuple[str, Any]], later: list[Any]
) -> None:
    slices = Slices()
    slices.listed(start)
    truth = {each["metadata"]["name"]: each for each in start}
    assert shown(slices.endpoints()) == slowly(truth)
    for kind, each in events:
        slices.changed(kind, each)
        name, there = each["metadata"]["name"], truth.get(each["metadata"]["name"])
        if kind != "DELETED":
            truth[name] = each
        elif there is not None and there["metadata"]["uid"] == each["metadata"]["uid"]:
            del truth[name]
        assert shown(slices.endpoints()) == slowly(truth)
    slices.listed(later)
    assert shown(slices.endpoints()) == slowly({each["metadata"]["name"]: each for each in later})


SECONDS = 1.0


@given(st.lists(st.tuples(st.sets(UIDS), st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.5]))))
def test_a_pod_that_vanishes_stays_for_a_while(steps: list[tuple[set[str], float]]) -> None:
    settling, now = Settling(SECONDS), 100.0
    listed_until: dict[str, float] = {}
    before: set[str] = set()
    for uids, pause in steps:
        now += pause
        listed_until |= dict.fromkeys(before - uids, now)
        pods = {uid: Endpoint(uid, uid, "ns", frozenset(), True, True, False) for uid in uids}
        taken = settling.take(pods, now)
        staying = {uid for uid, at in listed_until.items() if now < at + SECONDS}
        assert set(taken) == uids | staying
        waits = [at + SECONDS for uid, at in listed_until.items() if uid in set(taken) - uids]
        assert settling.next == min(waits, default=None)
        before = uids


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"addresses": ["10.0.0.1"]}, (True, True, False)),
        ({"addresses": ["10.0.0.1"], "conditions": None}, (True, True, False)),
        (
            {"conditions": {"ready": None, "serving": None, "terminating": None}},
            (True, True, False),
        ),
        ({"addresses": None, "conditions": {"ready": False}}, (False, True, False)),
        (
            {"conditions": {"ready": False, "serving": True, "terminating": True}},
            (False, True, True),
        ),
    ],
)
def test_what_is_null_has_the_meaning_of_the_api(
    entry: dict[str, Any], expected: tuple[bool, bool, bool]
) -> None:
    entry["targetRef"] = {"kind": "Pod", "name": "p", "uid": "u"}
    (pod,) = endpoints_of({"metadata": {"namespace": "ns"}, "endpoints": [entry]})
    assert (pod.ready, pod.serving, pod.terminating) == expected
    assert pod.namespace == "ns"


@pytest.mark.parametrize(
    "target", [None, {}, {"kind": "Pod", "name": "p"}, {"kind": "Node", "name": "n", "uid": "u"}]
)
def test_what_no_pod_stands_behind_is_left_out(target: dict[str, str] | None) -> None:
    entry = {"addresses": ["10.0.0.1"], "targetRef": target}
    assert not endpoints_of({"metadata": {}, "endpoints": [entry]})


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.0.0.1:50052", "10.0.0.1"),
        ("[fd00:0::1]:50052", "fd00::1"),
        ("worker-0.pool:50052", "worker-0.pool"),
    ],
)
def test_the_host_of_an_address(address: str, host: str) -> None:
    assert host_of(address) == host
