"""The service proxy: each cluster IP forwards TCP connections to endpoints, like kube-proxy.

Faithful: new connections go to ready endpoints in turn; where none is ready, to those that end but
still serve; where there are none, they are refused. A connection stays with its endpoint for life.
Not here: session affinity, traffic policies, UDP, node ports. A connection to an endpoint that has
died a moment ago is accepted and closed, where a real one is refused.
"""

import asyncio
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from itertools import count

from tests.kube import kinds
from tests.kube.endpoints import SERVICE_NAME
from tests.kube.loops import follow
from tests.kube.store import Obj, Store

Address = tuple[str, int]


class ServiceProxy:
    """Listens for the Services of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._targets: dict[Address, list[Address]] = {}
        self._servers: dict[Address, asyncio.Server] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._turn = count()

    @property
    def listening(self) -> list[Address]:
        """Where it listens now."""
        return list(self._servers)

    async def run(self) -> None:
        """Follow the Services and their slices until cancelled; then close everything."""
        try:
            await follow(self._store, [kinds.SERVICE, kinds.ENDPOINT_SLICE], self._update)
        finally:
            for server in self._servers.values():
                server.close()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _update(self, _: Store) -> None:
        self._targets = {address: targets for address, targets in self._wanted().items() if targets}
        for address in self._servers.keys() - self._targets.keys():
            self._servers.pop(address).close()
        for host, port in self._targets.keys() - self._servers.keys():
            self._servers[host, port] = await asyncio.start_server(self._accept, host, port)

    def _wanted(self) -> dict[Address, list[Address]]:
        wanted = {}
        for service in self._store.list(kinds.SERVICE):
            metadata, spec = service["metadata"], service["spec"]
            host = spec.get("clusterIP")
            for port in spec.get("ports") or []:
                if host and host != "None":
                    name = f"{SERVICE_NAME}={metadata['name']}"
                    slices = self._store.list(kinds.ENDPOINT_SLICE, metadata["namespace"], name)
                    wanted[host, port["port"]] = backends(slices, port.get("name", ""))
        return wanted

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        try:
            targets = self._targets.get(writer.get_extra_info("sockname")[:2], [])
            if targets:
                host, port = targets[next(self._turn) % len(targets)]
                # A task that ends cancelled is a complaint of asyncio's streams.
                with suppress(OSError, asyncio.CancelledError):
                    await _join(reader, writer, *await asyncio.open_connection(host, port))
        finally:
            writer.close()


def backends(slices: list[Obj], port_name: str) -> list[Address]:
    """Where new connections go."""
    found: dict[str, list[Address]] = {"ready": [], "ending": []}
    for one in slices:
        ports = [port["port"] for port in one["ports"] if port["name"] == port_name]
        for endpoint in one["endpoints"]:
            conditions = endpoint["conditions"]
            group = "ready" if conditions["ready"] else "ending" if conditions["serving"] else ""
            if group and ports:
                found[group].append((endpoint["addresses"][0], ports[0]))
    return found["ready"] or found["ending"]


async def _join(
    reader: StreamReader, writer: StreamWriter, far: StreamReader, far_writer: StreamWriter
) -> None:
    """Copy both ways until both have ended, or one broke."""

    async def copy(source: StreamReader, sink: StreamWriter) -> None:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
        sink.write_eof()

    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(copy(reader, far_writer))
            tasks.create_task(copy(far, writer))
    except* OSError:
        pass
    finally:
        far_writer.close()
