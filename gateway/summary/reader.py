"""Reads one model pool in Redis: its stream of events, and the state of its workers.

A stream entry carries `n`, which counts the pool's events without a gap, so that a reader notices
when some were trimmed, or when Redis lost them.
"""

from typing import NamedTuple, TypeAlias, cast

from radixgate.digest import SetDigest
from radixgate.prefix import unpack_hashes
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
from gateway.summary.store import pool_key

READ_AT_ONCE = 500

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
        return int(self.position.id.split(b"-")[0])


class PoolReader:
    """Args: `redis`, a client that waits longer than `read` blocks; `model` names the pool."""

    def __init__(self, redis: Redis, model: str) -> None:
        self._redis = redis
        self._pool = pool_key(model)
        self._stream = f"{self._pool}:events"

    async def end(self) -> Position:
        """The position after which all entries are new."""
        newest = cast(Entries, await self._redis.xrevrange(self._stream, count=1))
        for id_, fields in newest:
            return Position(id_, int(fields[b"n"]))
        return Position(b"0-0", None)

    async def read(self, after: Position, block_ms: int) -> list[Entry]:
        """Entries after a position, oldest first; waits for the first one up to `block_ms`."""
        streams = cast(
            list[tuple[bytes, Entries]],
            await self._redis.xread({self._stream: after.id}, READ_AT_ONCE, block_ms),
        )
        return [_entry(id_, fields) for _, entries in streams for id_, fields in entries]

    async def workers(self) -> list[str]:
        """Ids of the workers that may be registered."""
        ids = cast(set[bytes], await self._redis.smembers(f"{self._pool}:workers"))
        return sorted(id_.decode() for id_ in ids)

    async def record(self, worker: str) -> WorkerRecord | None:
        """All that Redis holds of `worker`, read at one instant; None when it is not registered."""
        key = f"{self._pool}:worker:{worker}"
        while (epoch := cast(bytes | None, await self._redis.hget(key, "epoch"))) is not None:
            async with self._redis.pipeline(transaction=True) as transaction:
                transaction.hgetall(key)
                transaction.smembers(f"{self._pool}:summary:{worker}:{epoch.decode()}")
                fields, hashes = await transaction.execute()
            # NOTE: another life may have registered after its epoch was read.
            if fields.get(b"epoch") == epoch:
                return _record(fields, hashes)
        return None


def _record(fields: Fields, hashes: set[bytes]) -> WorkerRecord:
    return WorkerRecord(
        registration=Registration.of(Hello.FromString(fields[b"hello"])),
        seq=int(fields[b"seq"]),
        digest=_digest(fields),
        hashes=frozenset(unpack_hashes(b"".join(hashes))),
        load=Load.FromString(fields[b"load"]) if b"load" in fields else None,
        synced=fields[b"synced"] == b"1",
    )


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
