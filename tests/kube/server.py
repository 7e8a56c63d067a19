"""The API server: the store over HTTP, with the faults that tests inject.

Plain HTTP on 127.0.0.1; a bearer token says who asks. Answers are JSON whatever was asked for,
which every client accepts.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable

from aiohttp import web

from tests.kube import discovery
from tests.kube.access import ADMIN, check_access, kubeconfig, user_of
from tests.kube.bodies import decoded
from tests.kube.errors import ApiError, expired
from tests.kube.kinds import Kind
from tests.kube.requests import perform
from tests.kube.store import Obj, Store
from tests.kube.tables import represent
from tests.kube.targets import Target, target_of, verb_of
from tests.kube.watches import Watch


class ApiServer:
    """Serves a store; `stop` and `start` again at the same address keep what it holds.

    Args:
        store: the objects.
        bookmarks: seconds between the bookmarks of a quiet watch.
        logs: what `pods/log` answers for a pod.
    """

    def __init__(
        self,
        store: Store,
        *,
        bookmarks: float = 60.0,
        logs: Callable[[Obj], str] = lambda pod: "",
    ) -> None:
        self.store = store
        self.port = 0
        self._bookmarks = bookmarks
        self._logs = logs
        self.requests: deque[str] = deque(maxlen=10_000)
        self._runner: web.AppRunner | None = None
        self._watches: set[Watch] = set()
        self._failing = 0
        self._to_drop: list[tuple[str, Kind | None]] = []
        self._dropped: set[int] = set()

    async def start(self) -> None:
        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the port and all connections."""
        if self._runner:
            await self._runner.cleanup()
            self._runner = None

    def kubeconfig(self, user: str = ADMIN, namespace: str = "default") -> str:
        """The text of a kubeconfig for "admin" or "system:serviceaccount:NAMESPACE:NAME"."""
        return kubeconfig(f"http://127.0.0.1:{self.port}", user, namespace)

    # Faults

    def drop_next(self, event: str, kind: Kind | None = None) -> None:
        """Leave the next change that shows as ADDED, MODIFIED or DELETED out of all watches."""
        self._to_drop.append((event, kind))

    def expire(self) -> None:
        """Forget the history: open watches end with 410, and older revisions are answered so."""
        self.store.compact()
        for watch in self._watches:
            watch.break_off(expired(self.store.revision - 1, self.store.revision))

    def freeze(self) -> None:
        """Send nothing more on the watches that are open now, but keep their connections."""
        for watch in self._watches:
            watch.frozen = True

    def fail(self, status: int) -> None:
        """Answer every request with this HTTP status from now on; 0 ends that."""
        self._failing = status

    # Requests

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.path_qs}")
        if self._failing:
            error = ApiError(self._failing, "InternalError", "the test wants it so")
            return _json(error.status(), status=error.code)
        try:
            user = user_of(request.headers)
            accept = request.headers.get("Accept", "")
            if found := discovery.answer(request.path, accept):
                return _json(*found)
            target = target_of(request.path)
            verb = verb_of(request.method, target, request.query)
            check_access(self.store, user, verb, target, request.query)
            if verb == "watch":
                return await self._stream(request, target)
            if target.subresource == "log":
                pod = self.store.get(target.kind, target.namespace or "", target.name) or {}
                return web.Response(text=self._logs(pod))
            body = decoded(await request.read(), request.content_type)
            agent = request.headers.get("User-Agent", "unknown").split("/")[0]
            manager = request.query.get("fieldManager", agent)
            status, result = perform(
                self.store, verb, target, request.query, body, request.content_type, manager
            )
            return _json(represent(target.kind, result, accept), status=status)
        except ApiError as error:
            return _json(error.status(), status=error.code)

    async def _stream(self, request: web.Request, target: Target) -> web.StreamResponse:
        watch = Watch(self.store, target, request.query, self._bookmarks)
        accept = request.headers.get("Accept", "")
        response = web.StreamResponse(headers={"Content-Type": _JSON})
        await response.prepare(request)
        self._watches.add(watch)
        try:
            async for revision, event in watch.events():
                if watch.frozen:
                    await asyncio.Event().wait()
                if self._drops(revision, event["type"], target.kind):
                    continue
                shown = event | {"object": represent(target.kind, event["object"], accept)}
                await response.write(json.dumps(shown).encode() + b"\n")
        finally:
            self._watches.discard(watch)
        return response

    def _drops(self, revision: int, event: str, kind: Kind) -> bool:
        for fault in self._to_drop:
            if revision not in self._dropped and fault in ((event, None), (event, kind)):
                self._to_drop.remove(fault)
                self._dropped.add(revision)
                break
        return event != "BOOKMARK" and revision in self._dropped


_JSON = "application/json"


def _json(document: Obj, content_type: str = _JSON, status: int = 200) -> web.Response:
    body = json.dumps(document).encode()
    return web.Response(body=body, status=status, headers={"Content-Type": content_type})
