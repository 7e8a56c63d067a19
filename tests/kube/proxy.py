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
from tests.kube.objects import follow
from tests.kube.store import Objs, Store

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
            await follow(self._store, self._update)
        finally:
            for server in self._servers.values():
                server.close()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _update(self, store: Store) -> None:
        self._targets = {}
        for service in store.list(kinds.SERVICE):
            metadata, host = service["metadata"], service["spec"]["clusterIP"]
            label = f"{SERVICE_NAME}={metadata['name']}"
            slices = store.list(kinds.ENDPOINT_SLICE, metadata["namespace"], label)
            for port in service["spec"]["ports"] if host != "None" else ():
                if targets := backends(slices, port.get("name", "")):
                    self._targets[host, port["port"]] = targets
        for address in self._servers.keys() - self._targets.keys():
            self._servers.pop(address).close()
        for host, port in self._targets.keys() - self._servers.keys():
            self._servers[host, port] = await asyncio.start_server(self._accept, host, port)

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        try:
            if targets := self._targets.get(writer.get_extra_info("sockname")[:2]):
                host, port = targets[next(self._turn) % len(targets)]
                # A task that ends cancelled is a complaint of asyncio's streams.
                with suppress(OSError, asyncio.CancelledError):
                    await _join(reader, writer, *await asyncio.open_connection(host, port))
        finally:
            writer.close()


def backends(slices: Objs, port_name: str) -> list[Address]:
    """Where new connections go."""
    ready, ending = [], []
    for one in slices:
        ports = [port["port"] for port in one["ports"] if port["name"] == port_name]
        for endpoint in one["endpoints"] if ports else ():
            address = endpoint["addresses"][0], ports[0]
            if endpoint["conditions"]["ready"]:
                ready.append(address)
            elif endpoint["conditions"]["serving"]:
                ending.append(address)
    return ready or ending


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
        await asyncio.gather(copy(reader, far_writer), copy(far, writer))
    finally:
        far_writer.close()
