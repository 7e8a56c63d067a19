"""Lists and watches: what of the store a client asked to see, as events of the API."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from tests.kube.errors import ApiError, bad_request, too_large
from tests.kube.requests import Target
from tests.kube.selectors import fields_match, labels_match
from tests.kube.store import Change, Obj, Store, key_of

Event = dict[str, Any]
Query = Mapping[str, str]


def listed(store: Store, target: Target, query: Query) -> Obj:
    """A list object.

    With `limit` in pages: each is of the present, but all have the revision of the first, so that
    a watch from there tells what has changed between them.
    """
    asked, after = _revision(query), ["", ""]
    if asked > store.revision:
        raise too_large(asked, store.revision)
    revision = store.revision
    if "continue" in query:
        revision, after = json.loads(query["continue"])
        store.check_kept(revision)
    matches = _chosen(target, query)
    found = [o for o in store.list(target.kind) if list(key_of(o)) > after and matches(o)]
    page = found[: int(query.get("limit", 0)) or None]
    metadata: Obj = {"resourceVersion": str(revision)}
    if len(found) > len(page):
        metadata["continue"] = json.dumps([revision, key_of(page[-1])])
        metadata["remainingItemCount"] = len(found) - len(page)
    for obj in page if target.kind.built_in else ():
        del obj["kind"], obj["apiVersion"]  # the list says them
    head = {"kind": f"{target.kind.kind}List", "apiVersion": target.kind.api_version}
    return {**head, "metadata": metadata, "items": page}


class Watch:
    """One watch of a client; `break_off` ends it by an ERROR event."""

    def __init__(self, store: Store, target: Target, query: Query, bookmarks: float) -> None:
        self._store = store
        self._kind = target.kind
        self._query = query
        self._matches = _chosen(target, query)
        self._marked = query.get("allowWatchBookmarks") == "true"
        self._every = bookmarks if self._marked else float("inf")
        self._seen = _revision(query)
        self._failure: asyncio.Future[Change] = asyncio.get_running_loop().create_future()
        if "sendInitialEvents" in query and query.get("resourceVersionMatch") != "NotOlderThan":
            raise bad_request("sendInitialEvents needs resourceVersionMatch NotOlderThan")

    def break_off(self, error: ApiError) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)
            self._failure.exception()  # else asyncio warns if nobody comes to see it

    async def events(self) -> AsyncIterator[tuple[int, Event]]:
        """Each event with its revision, until the client's timeoutSeconds have passed."""
        span = float(self._query.get("timeoutSeconds", random.uniform(1800, 3600)))
        until = time.monotonic() + span
        try:
            for event in self._initial_events():
                yield self._seen, event
            changes = self._store.watch(self._kind, self._seen)
            upcoming = asyncio.ensure_future(anext(changes))
            try:
                while (left := until - time.monotonic()) > 0:
                    ready, first = {upcoming, self._failure}, asyncio.FIRST_COMPLETED
                    wait = min(left, self._every)
                    done, _ = await asyncio.wait(ready, timeout=wait, return_when=first)
                    if done:
                        change = done.pop().result()
                        upcoming = asyncio.ensure_future(anext(changes))
                        self._seen = change.revision
                        if shown := self._event(change):
                            yield change.revision, shown
                    elif self._every < left:
                        self._seen = self._store.revision
                        yield self._seen, self._bookmark({})
            finally:
                upcoming.cancel()
        except ApiError as error:
            yield self._seen, {"type": "ERROR", "object": error.status()}

    def _initial_events(self) -> list[Event]:
        if self._seen > self._store.revision:
            raise too_large(self._seen, self._store.revision)
        asked, events = self._query.get("sendInitialEvents"), []
        if asked == "true" or (not self._seen and asked is None):
            self._seen = self._store.revision
            objects = filter(self._matches, self._store.list(self._kind))
            events = [{"type": "ADDED", "object": obj} for obj in objects]
            if asked and self._marked:
                events.append(self._bookmark({"k8s.io/initial-events-end": "true"}))
        self._seen = self._seen or self._store.revision
        return events

    def _event(self, change: Change) -> Event | None:
        """A change as one who sees only what matches sees it."""
        was = change.old is not None and self._matches(change.old)
        now = change.type != "DELETED" and self._matches(change.obj)
        if now:
            return {"type": "MODIFIED" if was else "ADDED", "object": change.obj}
        if not was or change.old is None:
            return None
        metadata = {**change.old["metadata"], "resourceVersion": str(change.revision)}
        last = {**change.old, "metadata": metadata}
        return {"type": "DELETED", "object": change.obj if change.type == "DELETED" else last}

    def _bookmark(self, annotations: dict[str, str]) -> Event:
        metadata: Obj = {"resourceVersion": str(self._seen), "annotations": annotations}
        head = {"kind": self._kind.kind, "apiVersion": self._kind.api_version}
        return {"type": "BOOKMARK", "object": {**head, "metadata": metadata}}


def _chosen(target: Target, query: Query) -> Callable[[Obj], bool]:
    """A test whether an object is of those that a list or watch asks for."""
    labels = labels_match(query.get("labelSelector", ""))
    fields = fields_match(query.get("fieldSelector", ""))

    def matches(obj: Obj) -> bool:
        metadata = obj["metadata"]
        inside = target.namespace in (None, metadata.get("namespace"))
        named = target.name in ("", metadata["name"])
        return inside and named and labels(metadata.get("labels", {})) and fields(obj)

    return matches


def _revision(query: Query) -> int:
    asked = query.get("resourceVersion") or "0"
    if not asked.isdigit():
        raise bad_request(f"invalid resource version: {asked!r}")
    return int(asked)
