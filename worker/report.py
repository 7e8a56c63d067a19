"""The KvSync client: tells one gateway, any of several, what the KV cache holds.

One task does it all. While no gateway listens nothing piles up, since the ledger keeps only the net
change. A gateway that holds what it should gets Deltas, one that does not gets a Snapshot.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle
from typing import Any, TypeAlias

import grpc
import grpc.aio
from radixgate.digest import SetDigest
from radixgate.limits import MAX_MESSAGE_BYTES
from radixgate.prefix import pack_hashes
from radixgate.v1 import sync_pb2
from radixgate.v1.sync_pb2 import Ack, Delta, Digest, Hello, Load, Removal, Report, Snapshot
from radixgate.v1.sync_pb2_grpc import KvSyncStub

from worker.engine.stats import EngineLoad
from worker.kv.events import Change, Held, KvEvents, Reason

_log = logging.getLogger(__name__)

LOAD_SECONDS = 0.5
COALESCE_SECONDS = 0.005
CHUNK_HASHES = 64 * 1024
MAX_UNACKNOWLEDGED = 1024
REFUSED_SECONDS = 10.0
CLOSE_SECONDS = 1.0
WELCOME_SECONDS = 10.0
_BACKOFF_SECONDS = 0.1
_LONGEST_BACKOFF_SECONDS = 5.0

_OPTIONS = [
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # NOTE: the reporter paces its own attempts, so no channel waits for the backoff of another.
    ("grpc.use_local_subchannel_pool", 1),
]

_REASONS = {
    Reason.CAPACITY: sync_pb2.REMOVAL_REASON_CAPACITY,
    Reason.CLEARED: sync_pb2.REMOVAL_REASON_CLEARED,
}

Call: TypeAlias = grpc.aio.StreamStreamCall[Any, Any]


class Unacknowledged:
    """The last Deltas that gateways may not have: what a new stream can start with.

    Args:
        capacity: Deltas kept; with fewer than are needed a Snapshot must do.
    """

    def __init__(self, capacity: int = MAX_UNACKNOWLEDGED) -> None:
        self._deltas: deque[Delta] = deque(maxlen=capacity)

    def add(self, delta: Delta) -> None:
        """A Delta is about to be sent; it follows the one added before."""
        self._deltas.append(delta)

    def acknowledged(self, seq: int) -> None:
        """The gateways hold everything up to `seq`."""
        while self._deltas and self._deltas[0].seq <= seq:
            self._deltas.popleft()

    def between(self, held: int, last: int) -> list[Delta] | None:
        """The Deltas after `held` up to `last`, the last one made; None when some are not here."""
        wanted = [delta for delta in self._deltas if delta.seq > held]
        return wanted if held <= last and len(wanted) == last - held else None


class Reporter:
    """Reports until `close`.

    Args:
        hello: who this worker is; `seq` is filled in.
        events: the ledger.
        load: the engine's load now, and whether the worker is draining.
        gateways: their addresses, at least one; tried in turn.
        jitter: spreads the attempts of many workers.
    """

    def __init__(
        self,
        hello: Hello,
        events: KvEvents,
        load: Callable[[], tuple[EngineLoad, bool]],
        gateways: Sequence[str],
        jitter: random.Random,
    ) -> None:
        self._hello = hello
        self._events = events
        self._load = load
        self._gateways = gateways
        self._jitter = jitter
        self._unacknowledged = Unacknowledged()
        self._resync = False
        self._failures = 0
        self._next_load = 0.0
        self._wake = asyncio.Event()
        self._closing = asyncio.Event()
        self._draining_known = asyncio.Event()

    async def run(self) -> None:
        """Keep one stream to one of the gateways; returns after `close`."""
        loop = asyncio.get_running_loop()
        self._events.on_pending = partial(_call, loop, self._wake.set)
        for gateway in cycle(self._gateways):
            delay = await self._attempt(gateway)
            try:
                async with asyncio.timeout(delay * self._jitter.uniform(0.5, 1.5)):
                    await self._closing.wait()
            except TimeoutError:
                continue
            return

    def tell_load(self) -> None:
        """Send a Load now."""
        self._next_load = 0.0
        self._wake.set()

    async def tell_draining(self) -> None:
        """Send a Load, which says that the worker drains; return when the gateways know."""
        self.tell_load()
        await self._draining_known.wait()

    def close(self) -> None:
        """Send a last Load, end the stream, and end `run`."""
        self._closing.set()
        self._wake.set()

    async def _attempt(self, gateway: str) -> float:
        """Report to `gateway` until that ends; the seconds to wait before the next attempt."""
        try:
            async with grpc.aio.insecure_channel(gateway, options=_OPTIONS) as channel:
                await self._session(gateway, KvSyncStub(channel).Sync())
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                _log.error("gateway %s refuses this worker: %s", gateway, error.details())
                return REFUSED_SECONDS
            code = error.code().name
            _log.warning("reports to gateway %s end: %s: %s", gateway, code, error.details())
        except TimeoutError:
            _log.warning("gateway %s takes reports but answers none; trying another", gateway)
        self._failures += 1
        return min(_BACKOFF_SECONDS * 2.0 ** (self._failures - 1), _LONGEST_BACKOFF_SECONDS)

    async def _session(self, gateway: str, call: Call) -> None:
        """One stream, to its end. Raises AioRpcError as the gateway ends it, TimeoutError when it
        falls silent.
        """
        self._resync = False
        tasks: list[asyncio.Task[None]] = []
        try:
            hello = Hello(seq=self._events.reported[0])
            hello.MergeFrom(self._hello)
            await call.write(Report(hello=hello))
            async with asyncio.timeout(WELCOME_SECONDS):
                first = await call.read()
            if not isinstance(first, Ack):
                return
            _log.info("reporting to gateway %s", gateway)
            self._failures = 0
            # NOTE: every Load is answered, so a silent gateway hangs; half a lease leaves time to
            # report to another one before this worker is taken for lost.
            reader = asyncio.create_task(self._read(call, patience=first.lease_ms / 1000 / 2))
            writer = asyncio.create_task(self._write(call, first))
            tasks = [reader, writer]
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if ended == {writer}:
                await asyncio.wait([reader], timeout=CLOSE_SECONDS)
            for task in ended:
                await task
        except asyncio.InvalidStateError:
            # NOTE: what grpc raises on a write after the gateway has ended the stream with OK.
            _log.info("gateway %s has ended the stream", gateway)
        finally:
            for task in tasks:
                task.cancel()
            call.cancel()

    async def _write(self, call: Call, first: Ack) -> None:
        """Send what `first` says is missing, then reports, until the worker closes."""
        await self._resume(call, first)
        await self._report(call)
        await call.done_writing()

    async def _resume(self, call: Call, ack: Ack) -> None:
        """Start from what the gateways hold."""
        missing = self._unacknowledged.between(ack.seq, self._events.reported[0])
        if ack.action == Ack.ACTION_RESYNC or missing is None:
            self._resync = True
            return
        for delta in missing:
            await call.write(Report(delta=delta))

    async def _report(self, call: Call) -> None:
        """Send changes soon and Loads steadily until the worker closes."""
        loop = asyncio.get_running_loop()
        self.tell_load()
        while True:
            self._wake.clear()
            closing = self._closing.is_set()
            await self._send_changes(call)
            if closing or loop.time() >= self._next_load:
                await call.write(Report(load=self._make_load()))
                self._next_load = loop.time() + LOAD_SECONDS
            if closing:
                return
            try:
                async with asyncio.timeout_at(self._next_load):
                    await self._wake.wait()
                    await asyncio.sleep(COALESCE_SECONDS)
            except TimeoutError:
                continue

    async def _read(self, call: Call, patience: float) -> None:
        """Take Acks to the end of the stream. Raises TimeoutError after `patience` without one."""
        while True:
            async with asyncio.timeout(patience):
                ack = await call.read()
            if not isinstance(ack, Ack):
                return
            if ack.draining:
                self._draining_known.set()
            if ack.action == Ack.ACTION_RESYNC:
                _log.info("the gateway asks for a snapshot: %s", ack.message)
                self._resync = True
                self._wake.set()
            else:
                self._unacknowledged.acknowledged(ack.seq)

    async def _send_changes(self, call: Call) -> None:
        if self._resync:
            self._resync = False
            for snapshot in snapshots(self._events.snapshot()):
                await call.write(Report(snapshot=snapshot))
        elif change := self._events.take():
            delta = _delta(change)
            self._unacknowledged.add(delta)
            await call.write(Report(delta=delta))

    def _make_load(self) -> Load:
        load, draining = self._load()
        seq, digest = self._events.reported
        message = load_message(load)
        message.draining, message.seq = draining, seq
        message.digest.CopyFrom(_digest(digest))
        return message


def load_message(load: EngineLoad) -> Load:
    """`load` as it is reported, without what is not the engine's: draining, and the ledger."""
    return Load(
        backlog_tokens=load.backlog_tokens,
        waiting=load.waiting,
        running=load.running,
        max_running=load.max_running,
        free_blocks=load.kv.free_blocks,
        cached_blocks=load.kv.cached_blocks,
        total_blocks=load.kv.total_blocks,
        prefill_tokens_per_second=load.prefill_tokens_per_second,
        itl_ms=load.itl_ms,
        regret_ms_per_block=load.regret_ms_per_block,
        backlog_work=load.backlog_work,
        prefill_work_per_second=load.prefill_work_per_second,
        attention_tokens=load.attention_tokens,
    )


def snapshots(held: Held, chunk: int = CHUNK_HASHES) -> Iterator[Snapshot]:
    """The held set in messages of `chunk` hashes; one, and empty, for the empty set."""
    for index, start in enumerate(range(0, max(1, len(held.hashes)), chunk)):
        last = start + chunk >= len(held.hashes)
        yield Snapshot(
            seq=held.seq,
            index=index,
            last=last,
            hashes=pack_hashes(held.hashes[start : start + chunk]),
            digest=_digest(held.digest) if last else None,
        )


def _call(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    loop.call_soon_threadsafe(function)


def _delta(change: Change) -> Delta:
    return Delta(
        seq=change.seq,
        stored=pack_hashes(change.stored),
        removed=[
            Removal(reason=_REASONS[reason], hashes=pack_hashes(hashes))
            for reason, hashes in change.removed.items()
        ],
        digest=_digest(change.digest),
    )


def _digest(digest: SetDigest) -> Digest:
    return Digest(count=digest.count, xor=digest.xor)
