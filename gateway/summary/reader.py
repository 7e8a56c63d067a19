"""Reads one model pool in Redis: its streams, and the state of its workers.

An entry in the stream of events carries `n`, which counts the pool's events without a gap, so that
a reader notices when some were trimmed, or when Redis lost them. Announcements of reservations are
in a stream of their own, and each gateway numbers its own.
"""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, TypeAlias, cast

from radixgate.digest import SetDigest
from radixgate.prefix import PrefixHash, pack_hashes, unpack_hashes
from radixgate.v1.peer_pb2 import Announcement
from radixgate.v1.sync_pb2 import Delta, Hello, Load
from redis.asyncio import Redis

from gateway.summary.events import (
    Changed,
    Departed,
    Detached,
    Event,
    Loaded,
    Registered,
    Registration,
    Replaced,
    WorkerRecord,
)
from gateway.summary.publisher import stream_key
from gateway.summary.store import epoch_digits, pool_key

READ_AT_ONCE = 500
SCAN_AT_ONCE = 500

Fields: TypeAlias = dict[bytes, bytes]
Entries: TypeAlias = list[tuple[bytes, Fields]]


class Position(NamedTuple):
    """A place in the stream: the last entry that was taken.

    Args: `id` of it in Redis; `n`, its number, None when the stream is empty.
    """

    id: bytes
    n: int | None


class Entry(NamedTuple):
    """An event and the position after it."""

    position: Position
    event: Event

    @property
    def milliseconds(self) -> int:
        """When it was appended, in Unix time of the clock of Redis."""
        return _time(self.position.id)[0]


class Heard(NamedTuple):
    """An announcement, and its id in Redis."""

    id: bytes
    announcement: Announcement


class PoolReader:
    """Args: `redis`, a client that waits longer than `read` blocks; `model` names the pool."""

    def __init__(self, redis: Redis, model: str) -> None:
        self._redis = redis
        self._pool = pool_key(model)
        self._stream = f"{self._pool}:events"
        self._announcements = stream_key(model).encode()

    async def end(self) -> Position:
        """The position after which all entries are new."""
        newest = cast(Entries, await self._redis.xrevrange(self._stream, count=1))
        for id_, fields in newest:
            return Position(id_, int(fields[b"n"]))
        return Position(b"0-0", None)

    async def last_announcement(self) -> bytes:
        """The id after which all announcements are new."""
        newest = cast(Entries, await self._redis.xrevrange(self._announcements, count=1))
        return newest[0][0] if newest else b"0-0"

    async def read(self, after: Position, heard: bytes, block_ms: int) -> list[Entry | Heard]:
        """What came after, in the order of time; waits for the first one up to `block_ms`.

        Args:
            after: position of the last event taken.
            heard: id of the last announcement taken.
            block_ms: milliseconds.
        """
        streams = cast(
            list[tuple[bytes, Entries]],
            await self._redis.xread(
                {self._stream: after.id, self._announcements: heard}, READ_AT_ONCE, block_ms
            ),
        )
        news: list[tuple[bytes, Entry | Heard]] = [
            (id_, (_heard if stream == self._announcements else _entry)(id_, fields))
            for stream, entries in streams
            for id_, fields in entries
        ]
        if len(streams) > 1:
            news.sort(key=lambda item: _time(item[0]))
        return [item for _, item in news]

    async def workers(self) -> list[str]:
        """Ids of the workers that may be registered."""
        ids = cast(set[bytes], await self._redis.smembers(f"{self._pool}:workers"))
        return sorted(id_.decode() for id_ in ids)

    async def scan(self, worker: str, epoch: int) -> AsyncIterator[list[PrefixHash]]:
        """All hashes in the summary of a life of `worker`, in steps, some perhaps twice.

        What is stored or removed meanwhile may be in it or not.
        """
        cursor = 0
        while True:
            cursor, members = await self._redis.sscan(
                self._summary(worker, epoch), cursor, count=SCAN_AT_ONCE
            )
            yield unpack_hashes(b"".join(cast(list[bytes], members)))
            if not cursor:
                return

    async def held(self, worker: str, epoch: int, hashes: Sequence[PrefixHash]) -> list[bool]:
        """Of each of `hashes`, at least one, whether the summary of that life has it."""
        members = [pack_hashes([name]) for name in hashes]
        answers = await self._redis.smismember(self._summary(worker, epoch), members)
        return [bool(answer) for answer in cast(list[int], answers)]

    async def record(self, worker: str) -> WorkerRecord | None:
        """All that Redis holds of `worker`, read at one instant; None when it is not registered."""
        key = f"{self._pool}:worker:{worker}"
        while (epoch := cast(bytes | None, await self._redis.hget(key, "epoch"))) is not None:
            async with self._redis.pipeline(transaction=True) as transaction:
                transaction.hgetall(key)
                transaction.smembers(self._summary(worker, int(epoch)))
                fields, hashes = await transaction.execute()
            # NOTE: another life may have registered after its epoch was read.
            if fields.get(b"epoch") == epoch:
                return _record(fields, hashes)
        return None

    def _summary(self, worker: str, epoch: int) -> str:
        return f"{self._pool}:summary:{worker}:{epoch_digits(epoch)}"


def _record(fields: Fields, hashes: set[bytes]) -> WorkerRecord:
    return WorkerRecord(
        registration=Registration.of(Hello.FromString(fields[b"hello"])),
        seq=int(fields[b"seq"]),
        digest=_digest(fields),
        hashes=frozenset(unpack_hashes(b"".join(hashes))),
        load=Load.FromString(fields[b"load"]) if b"load" in fields else None,
        synced=fields[b"synced"] == b"1",
    )


def _time(id_: bytes) -> tuple[int, int]:
    """Unix time in milliseconds on the clock of Redis, and a count within that millisecond."""
    milliseconds, _, count = id_.partition(b"-")
    return int(milliseconds), int(count)


def _heard(id_: bytes, fields: Fields) -> Heard:
    return Heard(id_, Announcement.FromString(fields[b"announcement"]))


def _entry(id_: bytes, fields: Fields) -> Entry:
    return Entry(Position(id_, int(fields[b"n"])), _event(fields))


def _event(fields: Fields) -> Event:
    worker, epoch = fields[b"worker"].decode(), int(fields[b"epoch"])
    match fields[b"kind"]:
        case b"registered":
            registration = Registration.of(Hello.FromString(fields[b"hello"]))
            return Registered(registration, int(fields[b"seq"]))
        case b"changed":
            return Changed.of(worker, epoch, Delta.FromString(fields[b"delta"]))
        case b"replaced":
            return Replaced(worker, epoch, int(fields[b"seq"]), _digest(fields))
        case b"loaded":
            load = Load.FromString(fields[b"load"])
            return Loaded(worker, epoch, load, fields[b"synced"] == b"1")
        case b"detached":
            return Detached(worker, epoch)
        case b"departed":
            return Departed(worker, epoch)
        case kind:
            raise ValueError(
                f"event kind {kind!r} of worker {worker!r} in Redis is unknown to this gateway;"
                " was it written by a newer one?"
            )


def _digest(fields: Fields) -> SetDigest:
    return SetDigest(int(fields[b"count"]), int.from_bytes(fields[b"xor"], "little"))
