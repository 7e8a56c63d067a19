"""Lists and watches: what of the store a client asked to see, as events of the API."""

import asyncio
import base64
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from tests.kube.errors import ApiError, bad_request, too_large
from tests.kube.selectors import fields_match, labels_match
from tests.kube.store import Change, Obj, Store
from tests.kube.targets import Target

Event = dict[str, Any]
Query = Mapping[str, str]


def chosen(target: Target, query: Query) -> Callable[[Obj | None], bool]:
    """A test whether an object is of those that a list or watch asks for."""
    labels = labels_match(query.get("labelSelector", ""))
    fields = fields_match(query.get("fieldSelector", ""))

    def matches(obj: Obj | None) -> bool:
        if obj is None:
            return False
        metadata = obj["metadata"]
        return (
            target.namespace in (None, metadata.get("namespace"))
            and target.name in ("", metadata["name"])
            and labels(metadata.get("labels", {}))
            and fields(obj)
        )

    return matches


def listed(store: Store, target: Target, query: Query) -> Obj:
    """A list object; with `limit` in pages, all of them as of the first page's revision."""
    start: tuple[str, ...] = ()
    revision = asked = _revision(query)
    if "continue" in query:
        token = json.loads(base64.urlsafe_b64decode(query["continue"]))
        revision, start = token["revision"], tuple(token["after"])
    elif asked > store.revision:
        raise too_large(asked, store.revision)
    elif query.get("resourceVersionMatch") != "Exact":
        revision = store.revision
    kind, matches = target.kind, chosen(target, query)
    found = [
        (key, obj)
        for key, obj in sorted(store.at(kind, revision).items())
        if key > start and matches(obj)
    ]
    page = found[: int(query.get("limit", 0)) or None]
    metadata: Obj = {"resourceVersion": str(revision)}
    if left := len(found) - len(page):
        token = json.dumps({"revision": revision, "after": page[-1][0]})
        metadata["continue"] = base64.urlsafe_b64encode(token.encode()).decode()
        metadata["remainingItemCount"] = left
    return {
        "kind": f"{kind.kind}List",
        "apiVersion": kind.api_version,
        "metadata": metadata,
        "items": [obj for _, obj in page],
    }


class Watch:
    """One watch of a client.

    `frozen` holds back all events from now on; `break_off` ends it by an ERROR event.
    """

    def __init__(self, store: Store, target: Target, query: Query, bookmarks: float) -> None:
        self.kind = target.kind
        self.frozen = False
        self._store = store
        self._query = query
        self._matches = chosen(target, query)
        self._every = bookmarks if query.get("allowWatchBookmarks") == "true" else 3600.0
        self._seen = _revision(query)
        self._failure: asyncio.Future[Change] = asyncio.get_running_loop().create_future()
        if "sendInitialEvents" in query and query.get("resourceVersionMatch") != "NotOlderThan":
            raise bad_request(
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            )

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
            changes = self._store.watch(self.kind, self._seen)
            upcoming = asyncio.ensure_future(anext(changes))
            try:
                while (left := until - time.monotonic()) > 0:
                    done, _ = await asyncio.wait(
                        {upcoming, self._failure},
                        timeout=min(left, self._every),
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                    if done:
                        change = done.pop().result()
                        upcoming = asyncio.ensure_future(anext(changes))
                        self._seen = change.revision
                        if event := self._event(change):
                            yield change.revision, event
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
            objects = self._store.at(self.kind, self._seen)
            events = [
                {"type": "ADDED", "object": obj}
                for _, obj in sorted(objects.items())
                if self._matches(obj)
            ]
            if asked and self._query.get("allowWatchBookmarks") == "true":
                events.append(self._bookmark({"k8s.io/initial-events-end": "true"}))
        self._seen = self._seen or self._store.revision
        return events

    def _event(self, change: Change) -> Event | None:
        """A change as one who sees only what matches sees it."""
        was, now = self._matches(change.old), self._matches(change.obj)
        if change.type == "DELETED":
            now = False
        if now:
            return {"type": "MODIFIED" if was else "ADDED", "object": change.obj}
        if was and change.old is not None:
            version = {"resourceVersion": str(change.revision)}
            old: Obj = change.old | {"metadata": change.old["metadata"] | version}
            return {"type": "DELETED", "object": change.obj if change.type == "DELETED" else old}
        return None

    def _bookmark(self, annotations: dict[str, str]) -> Event:
        metadata: Obj = {"resourceVersion": str(self._seen)}
        if annotations:
            metadata["annotations"] = annotations
        blank = {"kind": self.kind.kind, "apiVersion": self.kind.api_version, "metadata": metadata}
        return {"type": "BOOKMARK", "object": blank}


def _revision(query: Query) -> int:
    asked = query.get("resourceVersion") or "0"
    if not asked.isdigit():
        raise bad_request(f"invalid resource version: {asked!r}")
    return int(asked)
