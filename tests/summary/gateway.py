"""A gateway's half of KvSync on a real port, and a worker's half that keeps to the contract."""

import asyncio
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import grpc.aio
from radixgate.v1.gateway_pb2 import FinishRequest
from radixgate.v1.sync_pb2 import Ack, Hello, Report
from radixgate.v1.sync_pb2_grpc import KvSyncStub, add_KvSyncServicer_to_server

from gateway.summary.events import Event, EventObserver, Registration
from gateway.summary.outbox import Outboxes
from gateway.summary.pool import Pools
from gateway.summary.sync import Admit, KvSyncService
from tests.summary import values
from tests.summary.test_mirror import SetListener


class EventLog:
    """An observer that keeps all it is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def observe(self, model: str, event: Event) -> None:
        self.events.append(event)


@dataclass
class GatewayHalf:
    address: str
    pools: Pools
    service: KvSyncService
    log: EventLog
    listeners: dict[str, SetListener]
    finished: list[FinishRequest]

    def held(self, model: str, worker: str) -> frozenset[int] | None:
        pool = self.pools.find(model)
        summary = pool and pool.mirror.get(worker)
        return frozenset(summary.hashes) if summary else None


async def admit_all(registration: Registration) -> None:
    del registration


@asynccontextmanager
async def gateway_half(
    url: str,
    *,
    admit: Admit = admit_all,
    lease_ms: int = 5_000,
    observers: Sequence[EventObserver] = (),
) -> AsyncIterator[GatewayHalf]:
    log = EventLog()
    outboxes = Outboxes(secrets.token_hex(8))
    listeners: defaultdict[str, SetListener] = defaultdict(SetListener)
    finished: list[FinishRequest] = []
    pools = Pools(
        url,
        lease_ms,
        listener_for=listeners.__getitem__,
        outbox_of=outboxes.of,
        finished=finished.append,
        observers=[log, *observers],
    )
    service = KvSyncService(pools, admit)
    server = grpc.aio.server()
    add_KvSyncServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    discovery = asyncio.create_task(pools.run())
    yield GatewayHalf(f"127.0.0.1:{port}", pools, service, log, listeners, finished)
    discovery.cancel()
    await asyncio.gather(discovery, return_exceptions=True)
    await service.close()
    await server.stop(0)
    await pools.close()


@dataclass
class WorkerHalf:
    """Reports at once what is changed by `hold`, and its load again and again."""

    hello: Hello
    stream: grpc.aio.StreamStreamCall[Report, Ack]
    held: frozenset[int] = frozenset()
    seq: int = 0
    draining: bool = False
    acks: list[Ack] = field(default_factory=list)
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def hold(self, hashes: frozenset[int], *, lose: bool = False) -> None:
        async with self.sending:
            self.seq += 1
            report = values.delta(self.seq, self.held, hashes)
            self.held = hashes
            if not lose:
                await self.stream.write(Report(delta=report))

    async def send_load(self) -> None:
        async with self.sending:
            load = values.load(self.seq, self.held, draining=self.draining)
            await self.stream.write(Report(load=load))

    async def answer(self) -> None:
        # NOTE: reads, since a call that was read from cannot be iterated too.
        while isinstance(ack := await self.stream.read(), Ack):
            self.acks.append(ack)
            if ack.action == Ack.ACTION_RESYNC:
                async with self.sending:
                    for chunk in values.snapshot(self.seq, self.held, chunk=3):
                        await self.stream.write(Report(snapshot=chunk))

    async def report_load(self) -> None:
        while True:
            await self.send_load()
            await asyncio.sleep(0.05)

    @property
    def resyncs(self) -> int:
        return sum(ack.action == Ack.ACTION_RESYNC for ack in self.acks)


@asynccontextmanager
async def worker_half(
    address: str,
    hello: Hello,
    *,
    held: frozenset[int] = frozenset(),
    loads: bool = True,
) -> AsyncIterator[WorkerHalf]:
    """A worker's stream, open and answered; broken when the context ends."""
    async with grpc.aio.insecure_channel(address) as channel:
        stream = KvSyncStub(channel).Sync()
        worker = WorkerHalf(hello, stream, held, hello.seq)
        await stream.write(Report(hello=hello))
        first = await stream.read()
        assert isinstance(first, Ack)
        worker.acks.append(first)
        tasks = [asyncio.create_task(worker.answer())]
        if loads:
            tasks.append(asyncio.create_task(worker.report_load()))
        try:
            yield worker
        finally:
            for task in tasks:
                task.cancel()
            stream.cancel()
            with suppress(grpc.aio.AioRpcError):
                await asyncio.gather(*tasks, return_exceptions=True)
