"""Watches against an obvious model: a list of everything after each write."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube import kinds
from tests.kube.errors import ApiError
from tests.kube.examples import config_map
from tests.kube.requests import Target
from tests.kube.selectors import labels_match
from tests.kube.store import Store
from tests.kube.watches import listed, watch

SELECTORS = ("", "a=x", "a!=x", "a in (x, y)", "a notin (x,y)", "a,b", "!a", "a=x,!b")
TARGET = Target(kinds.CONFIG_MAP, "default", "", "")

Objects = dict[str, dict[str, Any]]

labels = st.dictionaries(st.sampled_from("ab"), st.sampled_from("xyz"))
writes = st.lists(
    st.tuples(st.sampled_from(("put", "put", "delete", "other")), st.sampled_from("mnop"), labels)
)


def write(store: Store, action: str, name: str, labels: dict[str, str]) -> None:
    there = store.get(kinds.CONFIG_MAP, "default", name)
    if action == "other":
        store.create(kinds.SECRET, {"metadata": {"name": f"{name}-{store.revision}"}})
    elif action == "put" and there:
        store.replace(kinds.CONFIG_MAP, config_map(name, labels=labels))
    elif action == "put":
        store.create(kinds.CONFIG_MAP, config_map(name, labels=labels))
    elif there:
        store.delete(kinds.CONFIG_MAP, "default", name)


def present(store: Store, selector: str) -> Objects:
    found = store.list(kinds.CONFIG_MAP, "default", selector)
    return {obj["metadata"]["name"]: obj for obj in found}


async def replayed(store: Store, query: dict[str, str], seen: Objects) -> list[tuple[int, Objects]]:
    """What a watcher holds after each event up to now, checked event by event."""
    states = [(int(query.get("resourceVersion", 0)), dict(seen))]
    async for revision, event in watch(store, TARGET, query, 60.0):
        obj = event["object"]
        name, version = obj["metadata"]["name"], int(obj["metadata"]["resourceVersion"])
        if name == "end":
            break
        assert (name in seen) == (event["type"] != "ADDED")
        assert version <= revision
        seen = {key: value for key, value in seen.items() if key != name}
        if event["type"] != "DELETED":
            seen[name] = obj
        states.append((revision, seen))
    return states


@given(before=writes, after=writes, selector=st.sampled_from(SELECTORS))
def test_a_watch_from_a_list_goes_through_every_later_list(
    before: list[Any], after: list[Any], selector: str
) -> None:
    async def check() -> None:
        store = Store()
        for one in before:
            write(store, *one)
        revision, seen = store.revision, present(store, selector)
        lists = {revision: seen}
        for one in after:
            write(store, *one)
            lists[store.revision] = present(store, selector)
        store.create(kinds.CONFIG_MAP, config_map("end", labels=dict(end_labels(selector))))
        query = {"labelSelector": selector, "resourceVersion": str(revision)}
        states = await replayed(store, query, seen)
        assert all(lists[at] == state for at, state in states)
        assert states[-1][1] == lists[max(lists)]

    asyncio.run(check())


@given(before=writes, selector=st.sampled_from(SELECTORS))
def test_a_watch_without_a_revision_begins_with_what_is_there(
    before: list[Any], selector: str
) -> None:
    async def check() -> None:
        store = Store()
        for one in before:
            write(store, *one)
        wanted = present(store, selector)
        store.create(kinds.CONFIG_MAP, config_map("zz", labels=dict(end_labels(selector))))
        seen = {}
        async for _, event in watch(store, TARGET, {"labelSelector": selector}, 60.0):
            assert event["type"] == "ADDED"
            if event["object"]["metadata"]["name"] == "zz":
                break
            seen[event["object"]["metadata"]["name"]] = event["object"]
        assert seen == wanted

    asyncio.run(check())


def end_labels(selector: str) -> list[tuple[str, str]]:
    """Labels that match a selector, to mark the end of its events."""
    for a in ("x", "z", ""):
        for b in ("x", ""):
            found = [(key, value) for key, value in (("a", a), ("b", b)) if value]
            if labels_match(selector)(dict(found)):
                return found
    raise AssertionError(selector)


@given(before=writes, between=st.lists(writes, min_size=12, max_size=12), limit=st.integers(1, 3))
def test_pages_and_a_watch_from_their_revision_end_at_the_present(
    before: list[Any], between: list[Any], limit: int
) -> None:
    async def check() -> None:
        store, query, seen = Store(), {"limit": str(limit)}, {}
        for one in before:
            write(store, *one)
        for later in between:
            page, last = listed(store, TARGET, query), max(seen, default="")
            assert len(page["items"]) <= limit
            assert all(obj["metadata"]["name"] > last for obj in page["items"])
            seen |= {obj["metadata"]["name"]: obj for obj in page["items"]}
            for one in later:
                write(store, *one)
            if "continue" not in page["metadata"]:
                break
            query["continue"] = page["metadata"]["continue"]
        store.create(kinds.CONFIG_MAP, config_map("end"))
        revision = {"resourceVersion": page["metadata"]["resourceVersion"]}
        async for _, event in watch(store, TARGET, revision, 60.0):
            name = event["object"]["metadata"]["name"]
            if name == "end":
                break
            seen.pop(name, None)
            if event["type"] != "DELETED":
                seen[name] = event["object"]
        wanted = present(store, "")
        del wanted["end"]
        assert {name: obj["metadata"]["resourceVersion"] for name, obj in seen.items()} == {
            name: obj["metadata"]["resourceVersion"] for name, obj in wanted.items()
        }

    asyncio.run(check())


async def events(store: Store, **query: str) -> list[dict[str, Any]]:
    seen = watch(store, TARGET, {"timeoutSeconds": "0.05", **query}, 0.02)
    return [event async for _, event in seen]


async def test_a_history_that_is_forgotten_is_expired() -> None:
    store = Store(history=3)
    old = store.revision
    for name in "abcd":
        store.create(kinds.CONFIG_MAP, config_map(name))
    assert [e["object"]["code"] for e in await events(store, resourceVersion=str(old))] == [410]
    assert await events(store, resourceVersion=str(old + 1))
    page = listed(store, TARGET, {"limit": "1"})
    store.compact()
    assert (await events(store, resourceVersion=str(store.revision))) == []
    store.create(kinds.CONFIG_MAP, config_map("e"))
    store.compact()
    with pytest.raises(ApiError, match="too old"):
        listed(store, TARGET, {"limit": "1", "continue": page["metadata"]["continue"]})


async def test_bookmarks_and_the_end_of_initial_events() -> None:
    store = Store()
    store.create(kinds.CONFIG_MAP, config_map("a"))
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    seen = await events(store, allowWatchBookmarks="true", **query)
    added, end, *later = seen
    assert (added["type"], end["type"]) == ("ADDED", "BOOKMARK")
    assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert {event["type"] for event in later} == {"BOOKMARK"}
    assert later[0]["object"]["metadata"]["resourceVersion"] == str(store.revision)
    assert [e["type"] for e in await events(store, **query)] == ["ADDED"]
    revision = {"resourceVersion": str(store.revision)}
    store.create(kinds.SECRET, {"metadata": {"name": "of-another-kind"}})
    first, *_ = await events(store, allowWatchBookmarks="true", **revision)
    assert first["object"]["metadata"]["resourceVersion"] == str(store.revision)


async def test_a_revision_of_the_future_is_too_large() -> None:
    store = Store()
    future = {"resourceVersion": str(store.revision + 1)}
    assert [event["object"]["code"] for event in await events(store, **future)] == [504]
    with pytest.raises(ApiError, match="Too large"):
        listed(store, TARGET, future)


def test_selectors() -> None:
    assert labels_match("a=b, c in (d,e) ,!f,g")({"a": "b", "c": "e", "g": ""})
    assert labels_match("c notin (d, e)")({})
    assert not labels_match("app.kubernetes.io/name==x")({"app.kubernetes.io/name": "y"})
    for wrong in ("a=b=c", "a in b", "=x", "a in (b"):
        with pytest.raises(ApiError, match="unable to parse"):
            labels_match(wrong)
