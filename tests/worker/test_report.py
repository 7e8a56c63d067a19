"""The reporter against a gateway that keeps to the contract, and can be made to forget."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from threading import Lock

import grpc
import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from radixgate.digest import SetDigest
from radixgate.prefix import PrefixHash, unpack_hashes
from radixgate.v1.sync_pb2 import Ack, Delta, Hello, Load, Report, Snapshot
from radixgate.v1.sync_pb2_grpc import KvSyncServicer, add_KvSyncServicer_to_server

from tests.engine.toys import Bench
from worker.kv.events import Held, KvEvents, Reason
from worker.report import Reporter, Unacknowledged, snapshots

LEASE_MS = 3_000


class Gateway(KvSyncServicer):
    """Holds one worker's summary."""

    def __init__(self) -> None:
        self.seq = 0
        self.held: set[int] = set()
        self.hellos: list[Hello] = []
        self.loads: list[Load] = []
        self.deltas = self.snapshots = self.ended = 0
        self.refusal: str | None = None
        self.acknowledges = True
        self.silent = False
        self.confirms = True
        self._staged: set[int] = set()
        self._changed = asyncio.Event()

    async def Sync(self, request_iterator, context):
        try:
            async for report in request_iterator:
                if self.refusal:
                    self.hellos.append(report.hello)
                    self._changed.set()
                    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, self.refusal)
                if (ack := self._take(report)) and not self.silent:
                    await context.write(ack)
                self._changed.set()
        finally:
            self.ended += 1
            self._changed.set()

    def _take(self, report: Report) -> Ack | None:
        match report.WhichOneof("report"):
            case "hello":
                self.hellos.append(report.hello)
                return self._continue(self.seq)
            case "delta":
                return self._apply(report.delta)
            case "snapshot":
                return self._stage(report.snapshot)
            case "load":
                self.loads.append(report.load)
                if report.load.seq != self.seq:
                    return self._resync()
                return self._continue(self.seq if self.acknowledges else 0)

    def _apply(self, delta: Delta) -> Ack | None:
        if delta.seq != self.seq + 1:
            return self._resync()
        stored = set(unpack_hashes(delta.stored))
        removed = {name for part in delta.removed for name in unpack_hashes(part.hashes)}
        assert not stored & self.held
        assert removed <= self.held
        assert not stored & removed
        self.held = (self.held | stored) - removed
        self.seq = delta.seq
        self.deltas += 1
        digest = SetDigest.of(self.held)
        assert (delta.digest.count, delta.digest.xor) == (digest.count, digest.xor)
        return self._continue(self.seq) if self.acknowledges else None

    def _stage(self, snapshot: Snapshot) -> Ack | None:
        if snapshot.index == 0:
            self._staged = set()
        self._staged |= set(unpack_hashes(snapshot.hashes))
        if not snapshot.last:
            return None
        self.held, self.seq = self._staged, snapshot.seq
        self.snapshots += 1
        return self._continue(self.seq)

    def _continue(self, seq: int) -> Ack:
        draining = self.confirms and bool(self.loads) and self.loads[-1].draining
        return Ack(action=Ack.ACTION_CONTINUE, seq=seq, lease_ms=LEASE_MS, draining=draining)

    def _resync(self) -> Ack:
        return Ack(action=Ack.ACTION_RESYNC, seq=self.seq, message="test")

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not true():
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def serving(gateway: Gateway, port: int = 0) -> AsyncIterator[int]:
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    add_KvSyncServicer_to_server(gateway, server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield bound
    finally:
        await server.stop(0)


@asynccontextmanager
async def reporting(events: KvEvents, *ports: int) -> AsyncIterator[Reporter]:
    bench = Bench()
    hello = Hello(worker="w", epoch=7, address="127.0.0.1:1", model="m")
    gateways = [f"127.0.0.1:{port}" for port in ports]
    reporter = Reporter(
        hello, events, lambda: (bench.core.load(), False), gateways, random.Random(0)
    )
    task = asyncio.create_task(reporter.run())
    try:
        yield reporter
    finally:
        reporter.close()
        await task


def hashes(*values: int) -> list[PrefixHash]:
    return [PrefixHash(value) for value in values]


@pytest.fixture
def events() -> KvEvents:
    return KvEvents(Lock())


async def test_changes_and_loads_arrive(events: KvEvents) -> None:
    gateway = Gateway()
    async with serving(gateway) as port, reporting(events, port):
        await gateway.until(lambda: bool(gateway.loads))
        events.stored(hashes(1, 2, 3))
        await gateway.until(lambda: gateway.held == {1, 2, 3})
        events.removed(hashes(2), Reason.CAPACITY)
        events.stored(hashes(9))
        await gateway.until(lambda: gateway.held == {1, 3, 9})
        count = len(gateway.loads)
        await gateway.until(lambda: len(gateway.loads) > count)
        assert gateway.loads[-1].digest.count == 3
        assert gateway.loads[-1].total_blocks == 32
        assert gateway.snapshots == 0
        assert (gateway.hellos[0].worker, gateway.hellos[0].epoch) == ("w", 7)
    assert gateway.ended == 1


async def test_what_happened_before_the_first_gateway_is_one_delta(events: KvEvents) -> None:
    gateway = Gateway()
    events.stored(hashes(1, 2))
    events.removed(hashes(1), Reason.CAPACITY)
    async with serving(gateway) as port, reporting(events, port):
        await gateway.until(lambda: gateway.held == {2})
        assert gateway.deltas == 1


async def test_a_gateway_that_lost_everything_gets_a_snapshot(events: KvEvents) -> None:
    gateway = Gateway()
    async with serving(gateway) as port, reporting(events, port):
        events.stored(hashes(1, 2))
        await gateway.until(lambda: gateway.held == {1, 2})
        gateway.held, gateway.seq = set(), 0
        await gateway.until(lambda: gateway.held == {1, 2})
        assert gateway.snapshots == 1
        events.stored(hashes(3))
        await gateway.until(lambda: gateway.held == {1, 2, 3})
        assert gateway.snapshots == 1


async def test_a_new_stream_resends_what_was_not_acknowledged(events: KvEvents) -> None:
    first, second = Gateway(), Gateway()
    first.acknowledges = False
    async with serving(second) as second_port:
        async with serving(first) as first_port:
            stack = reporting(events, first_port, second_port)
            await stack.__aenter__()
            for value in (1, 2):
                events.stored(hashes(value))
                await first.until(lambda value=value: value in first.held)
            second.held, second.seq = {1}, 1
        await second.until(lambda: second.held == {1, 2})
        assert (second.snapshots, second.deltas) == (0, 1)
        await stack.__aexit__(None, None, None)


async def test_a_gateway_that_falls_silent_is_left_for_another(events: KvEvents) -> None:
    first, second = Gateway(), Gateway()
    async with serving(first) as port, serving(second) as other, reporting(events, port, other):
        await first.until(lambda: len(first.loads) > 1)
        first.silent = True
        await second.until(lambda: bool(second.loads))
        first.silent = False
        second.silent = True
        await first.until(lambda: len(first.hellos) == 2)


async def test_a_new_stream_snapshots_what_is_no_longer_here(events: KvEvents) -> None:
    first, second = Gateway(), Gateway()
    async with serving(second) as second_port:
        async with serving(first) as first_port:
            stack = reporting(events, first_port, second_port)
            await stack.__aenter__()
            events.stored(hashes(1))
            await first.until(lambda: first.held == {1})
        await second.until(lambda: second.held == {1})
        assert second.snapshots == 1
        await stack.__aexit__(None, None, None)


async def test_a_refused_worker_says_why_and_does_not_hammer(
    events: KvEvents, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = Gateway()
    gateway.refusal = "another tokenizer"
    async with serving(gateway) as port, reporting(events, port):
        await gateway.until(lambda: gateway.ended == 1)
    assert "refuses this worker: another tokenizer" in caplog.text
    assert len(gateway.hellos) == 1


@given(st.sets(st.integers(0, 2**64 - 1), max_size=40), st.integers(1, 10))
def test_snapshots_carry_the_whole_set(held: set[int], chunk: int) -> None:
    names = [PrefixHash(name) for name in held]
    parts = list(snapshots(Held(3, names, SetDigest.of(names)), chunk))
    assert [part.index for part in parts] == list(range(len(parts)))
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert [name for part in parts for name in unpack_hashes(part.hashes)] == names
    assert parts[-1].digest.count == len(held)
    assert {part.seq for part in parts} == {3}


@given(
    st.integers(1, 5),
    st.lists(st.sampled_from(["make", "acknowledge", "snapshot"]), max_size=20),
    st.integers(0, 25),
    st.data(),
)
def test_unacknowledged_is_all_that_is_missing_or_nothing(
    capacity: int, script: list[str], held: int, data: st.DataObject
) -> None:
    kept, last, made = Unacknowledged(capacity), 0, set()
    for action in script:
        if action == "acknowledge":
            kept.acknowledged(data.draw(st.integers(0, last)))
            continue
        last += 1
        if action == "make":
            kept.add(Delta(seq=last))
            made.add(last)
    answer = kept.between(held, last)
    if answer is not None:
        assert [delta.seq for delta in answer] == list(range(held + 1, last + 1))
        assert {delta.seq for delta in answer} <= made
    fresh = Unacknowledged(100)
    for seq in range(1, last + 1):
        fresh.add(Delta(seq=seq))
    assert (fresh.between(held, last) is not None) == (held <= last)
