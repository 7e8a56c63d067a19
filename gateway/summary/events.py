"""What happens to the workers of a model pool, as typed values.

A pool is all workers of one model. Every gateway sees the same events in the same order through
the pool's stream in Redis; while Redis is away a gateway makes them itself from its own reports.

An epoch and a seq name the state of a summary: the worker numbers its changes, so two copies with
the same epoch and seq are equal, and the later one always wins.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from radixgate.digest import SetDigest
from radixgate.prefix import PrefixHash, unpack_hashes
from radixgate.v1.sync_pb2 import Delta, Digest, Hello, Load, RemovalReason


@dataclass(frozen=True, slots=True)
class Registration:
    """One life of a worker as it announced itself; the fields are those of `Hello`."""

    worker: str
    epoch: int
    address: str
    model: str
    fingerprint: str
    block_size: int
    stride: int
    num_blocks: int

    @classmethod
    def of(cls, hello: Hello) -> "Registration":
        """Raises ValueError when `hello` lacks a name, an address or a size."""
        required = ("worker", "epoch", "address", "model", "fingerprint", "block_size", "stride")
        missing = [field for field in required if not getattr(hello, field)]
        if missing:
            raise ValueError(f"Hello of worker {hello.worker!r} lacks {', '.join(missing)}")
        if set("{}") & set(hello.model):
            raise ValueError(f"Hello of worker {hello.worker!r}: braces in model {hello.model!r}")
        return cls(
            worker=hello.worker,
            epoch=hello.epoch,
            address=hello.address,
            model=hello.model,
            fingerprint=hello.fingerprint,
            block_size=hello.block_size,
            stride=hello.stride,
            num_blocks=hello.num_blocks,
        )

    @property
    def shape(self) -> str:
        """What must be equal in all workers of a pool for their prefix hashes to be comparable."""
        return f"fingerprint {self.fingerprint}, block size {self.block_size}, stride {self.stride}"


@dataclass(frozen=True, slots=True)
class Registered:
    """A worker is there. A new epoch starts empty at seq 0; a known one goes on after `seq`.

    `load` and `synced`, when this is read from its record: what it reported last, at some time.
    """

    registration: Registration
    seq: int
    load: Load | None = None
    synced: bool = False

    @property
    def worker(self) -> str:
        """As in every event."""
        return self.registration.worker

    @property
    def epoch(self) -> int:
        """As in every event."""
        return self.registration.epoch


@dataclass(frozen=True, slots=True)
class Changed:
    """A Delta was applied; `digest` is that of the summary after it.

    `evicted`: those of `removed` that had to make room, and were not removed for another reason.
    """

    worker: str
    epoch: int
    seq: int
    stored: Sequence[PrefixHash]
    removed: Sequence[PrefixHash]
    digest: SetDigest
    evicted: Sequence[PrefixHash] = ()

    @classmethod
    def of(cls, worker: str, epoch: int, delta: Delta) -> "Changed":
        """Raises ValueError when a hash is cut off or named twice."""
        stored = unpack_hashes(delta.stored)
        removed: list[PrefixHash] = []
        evicted: list[PrefixHash] = []
        for removal in delta.removed:
            hashes = unpack_hashes(removal.hashes)
            removed += hashes
            if removal.reason == RemovalReason.REMOVAL_REASON_CAPACITY:
                evicted += hashes
        if len({*stored, *removed}) != len(stored) + len(removed):
            raise ValueError(f"Delta {delta.seq} of worker {worker!r} names a prefix hash twice")
        return cls(worker, epoch, delta.seq, stored, removed, digest_of(delta.digest), evicted)


@dataclass(frozen=True, slots=True)
class Replaced:
    """A Snapshot took the place of the summary. Its hashes are to be read from Redis."""

    worker: str
    epoch: int
    seq: int
    digest: SetDigest


@dataclass(frozen=True, slots=True)
class Loaded:
    """A worker is alive and reported its load.

    `synced`: its held set, as its own digest says, equals its summary.
    """

    worker: str
    epoch: int
    load: Load
    synced: bool


@dataclass(frozen=True, slots=True)
class Detached:
    """The worker's KvSync stream ended; the worker itself may be well."""

    worker: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Departed:
    """The worker left, or its lease passed without news."""

    worker: str
    epoch: int


Event: TypeAlias = Registered | Changed | Replaced | Loaded | Detached | Departed


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """All that Redis holds of one worker, read at one instant."""

    registration: Registration
    seq: int
    digest: SetDigest
    hashes: frozenset[PrefixHash]
    load: Load | None = None
    synced: bool = False


class EventObserver(Protocol):
    """Told of every event of a pool after the mirror has taken it."""

    def observe(self, model: str, event: Event) -> None:
        """`model` names the pool."""


def digest_of(digest: Digest) -> SetDigest:
    """The digest as a value."""
    return SetDigest(digest.count, digest.xor)
