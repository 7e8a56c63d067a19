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
from tests.kube.errors import ApiError
from tests.kube.kinds import Kind
from tests.kube.requests import Target, perform, target_of, verb_of
from tests.kube.store import Obj, Store
from tests.kube.watches import listed, watch


class ApiServer:
    """Serves a store; `stop` and `start` again, at the same port, keep what it holds.

    Args:
        store: the objects.
        bookmarks: seconds between the bookmarks of a quiet watch.
        logs: what `pods/log` answers for a pod.

    Attributes: `requests`, the last ones, as "GET /api/v1/pods?watch=true"; `port`.
    """

    def __init__(
        self, store: Store, *, bookmarks: float = 60.0, logs: Callable[[Obj], str] = lambda pod: ""
    ) -> None:
        self.store = store
        self.port = 0
        self.requests: deque[str] = deque(maxlen=10_000)
        self._bookmarks = bookmarks
        self._logs = logs
        self._runner: web.AppRunner | None = None
        self._watches: set[web.StreamResponse] = set()
        self._frozen: set[web.StreamResponse] = set()
        self._failing = 0
        self._to_drop: list[tuple[str, Kind | None]] = []
        self._dropped: set[int] = set()

    async def start(self) -> None:
        """Take a free port, or that of last time."""
        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
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

    def freeze(self) -> None:
        """Send nothing more on the watches that are open now, but keep their connections."""
        self._frozen |= self._watches

    def fail(self, status: int) -> None:
        """Answer every request with this HTTP status from now on; 0 ends that."""
        self._failing = status

    # Requests

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.path_qs}")
        try:
            return await self._serve(request)
        except ApiError as error:
            return web.json_response(error.status(), status=error.code)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if self._failing:
            raise ApiError(self._failing, "InternalError", "the test wants it so")
        user, query = user_of(request.headers), request.query
        if document := discovery.answer(request.path):
            return web.json_response(document)
        target = target_of(request.path)
        verb = verb_of(request.method, target, query)
        check_access(self.store, user, verb, target)
        if verb == "watch":
            return await self._stream(request, target)
        if verb == "list":
            return web.json_response(listed(self.store, target, query))
        body = decoded(await request.read(), request.content_type)
        agent = request.headers.get("User-Agent", "unknown").partition("/")[0]
        options = {"fieldManager": agent, **query}
        result, status = perform(self.store, verb, target, options, body, request.content_type)
        if target.subresource == "log":
            return web.Response(text=self._logs(result))
        return web.json_response(result, status=status)

    async def _stream(self, request: web.Request, target: Target) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        self._watches.add(response)
        events = watch(self.store, target, request.query, self._bookmarks)
        try:
            async for revision, event in events:
                if response in self._frozen:
                    await asyncio.Event().wait()
                if not self._drops(revision, event["type"], target.kind):
                    await response.write(json.dumps(event).encode() + b"\n")
        finally:
            self._watches.discard(response)
            self._frozen.discard(response)
        return response

    def _drops(self, revision: int, event: str, kind: Kind) -> bool:
        for fault in ((event, None), (event, kind)):
            if revision not in self._dropped and fault in self._to_drop:
                self._to_drop.remove(fault)
                self._dropped.add(revision)
        return event not in ("BOOKMARK", "ERROR") and revision in self._dropped
