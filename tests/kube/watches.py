"""Lists and watches: what of the store a client asked to see, as events of the API."""

import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from tests.kube.errors import ApiError
from tests.kube.kinds import Kind
from tests.kube.requests import Target
from tests.kube.selectors import labels_match, names_match
from tests.kube.store import Change, Obj, Store, key_of

Event = dict[str, Any]
Query = Mapping[str, str]

WATCH_SECONDS = 1800.0


def listed(store: Store, target: Target, query: Query) -> Obj:
    """A list object.

    With `limit` in pages: each is of the present, but all have the revision of the first, so that
    a watch from there tells what has changed between them.
    """
    revision, after = store.revision, ["", ""]
    _asked(store, query)
    if "continue" in query:
        revision, after = json.loads(query["continue"])
        store.since(revision)  # 410 if a watch from there could not tell
    matches = _chosen(target, query)
    found = [o for o in store.list(target.kind) if list(key_of(o)) > after and matches(o)]
    page = found[: int(query.get("limit", 0)) or None]
    metadata: Obj = {"resourceVersion": str(revision)}
    if len(found) > len(page):
        metadata["continue"] = json.dumps([revision, key_of(page[-1])])
    for obj in page:
        del obj["kind"], obj["apiVersion"]  # the list says them
    head = {"kind": f"{target.kind.kind}List", "apiVersion": target.kind.api_version}
    return {**head, "metadata": metadata, "items": page}


async def watch(
    store: Store, target: Target, query: Query, bookmarks: float
) -> AsyncIterator[tuple[int, Event]]:
    """Each event with its revision, until the client's timeoutSeconds have passed, or an ERROR.

    Args: `bookmarks`, seconds from one to the next.
    """
    until = time.monotonic() + float(query.get("timeoutSeconds", WATCH_SECONDS))
    marked = query.get("allowWatchBookmarks") == "true"
    next_mark = time.monotonic() + bookmarks if marked else float("inf")
    initial = query.get("sendInitialEvents")
    seen = 0
    try:
        seen, matches = _asked(store, query), _chosen(target, query)
        if initial == "true" or (not seen and initial is None):
            seen = store.revision
            for obj in filter(matches, store.list(target.kind)):
                yield seen, {"type": "ADDED", "object": obj}
            if initial and marked:
                yield seen, _bookmark(target.kind, seen, {"k8s.io/initial-events-end": "true"})
        seen = seen or store.revision
        while (now := time.monotonic()) < until:
            for change in store.since(seen):
                seen = change.revision
                if change.kind == target.kind and (event := _event(change, matches)):
                    yield seen, event
            if now >= next_mark:
                next_mark = now + bookmarks
                yield seen, _bookmark(target.kind, seen, {})
            if seen == store.revision:
                await store.wait(min(until, next_mark) - now)
    except ApiError as error:
        yield seen, {"type": "ERROR", "object": error.status()}


def _event(change: Change, matches: Callable[[Obj], bool]) -> Event | None:
    """A change as one who sees only what matches sees it."""
    was = change.old is not None and matches(change.old)
    now = change.type != "DELETED" and matches(change.obj)
    if now:
        return {"type": "MODIFIED" if was else "ADDED", "object": change.obj}
    if not was or change.old is None:
        return None
    metadata = {**change.old["metadata"], "resourceVersion": str(change.revision)}
    return {"type": "DELETED", "object": {**change.old, "metadata": metadata}}


def _bookmark(kind: Kind, revision: int, annotations: dict[str, str]) -> Event:
    metadata: Obj = {"resourceVersion": str(revision), "annotations": annotations}
    head = {"kind": kind.kind, "apiVersion": kind.api_version}
    return {"type": "BOOKMARK", "object": {**head, "metadata": metadata}}


def _chosen(target: Target, query: Query) -> Callable[[Obj], bool]:
    """A test whether an object is of those that a list or watch asks for."""
    labels = labels_match(query.get("labelSelector", ""))
    names = names_match(query.get("fieldSelector", ""))

    def matches(obj: Obj) -> bool:
        metadata = obj["metadata"]
        inside = target.namespace in (None, metadata.get("namespace"))
        named = target.name in ("", metadata["name"]) and names(metadata["name"])
        return inside and named and labels(metadata.get("labels", {}))

    return matches


def _asked(store: Store, query: Query) -> int:
    """The revision that is asked for; 504 of one that is yet to come."""
    asked = query.get("resourceVersion") or "0"
    if not asked.isdigit():
        raise ApiError(400, "BadRequest", f"invalid resource version: {asked!r}")
    if int(asked) > store.revision:
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        words = f"Too large resource version: {asked}, current: {store.revision}"
        raise ApiError(504, "Timeout", words, causes=[cause], retryAfterSeconds=1)
    return int(asked)
