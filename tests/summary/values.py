"""Short ways to make the values and messages that the tests of summary and fleet share."""

from collections.abc import Iterable

from radixgate.digest import SetDigest
from radixgate.prefix import pack_hashes
from radixgate.v1.sync_pb2 import Delta, Digest, Hello, Load, Removal, RemovalReason, Snapshot

from gateway.summary.events import Registration

MODEL = "tiny"
FINGERPRINT = "f00d"


def hello(
    worker: str,
    epoch: int,
    *,
    seq: int = 0,
    address: str = "127.0.0.1:1",
    model: str = MODEL,
    stride: int = 64,
) -> Hello:
    return Hello(
        worker=worker,
        epoch=epoch,
        address=address,
        model=model,
        fingerprint=FINGERPRINT,
        block_size=16,
        stride=stride,
        num_blocks=100,
        seq=seq,
    )


def registration(worker: str, epoch: int, *, address: str = "127.0.0.1:1") -> Registration:
    return Registration.of(hello(worker, epoch, address=address))


def digest(hashes: Iterable[int]) -> Digest:
    value = SetDigest.of(hashes)
    return Digest(count=value.count, xor=value.xor)


def delta(seq: int, before: Iterable[int], after: Iterable[int]) -> Delta:
    """The Delta with which a worker that held `before` says that it holds `after`."""
    old, new = set(before), set(after)
    removal = Removal(
        reason=RemovalReason.REMOVAL_REASON_CAPACITY, hashes=pack_hashes(sorted(old - new))
    )
    return Delta(
        seq=seq,
        stored=pack_hashes(sorted(new - old)),
        removed=[removal] if old - new else [],
        digest=digest(new),
    )


def load(seq: int, hashes: Iterable[int], *, draining: bool = False) -> Load:
    return Load(seq=seq, digest=digest(hashes), free_blocks=10, draining=draining)


def snapshot(seq: int, hashes: Iterable[int], chunk: int) -> list[Snapshot]:
    """A Snapshot in chunks of `chunk` hashes; one empty chunk for the empty set."""
    held = sorted(hashes)
    parts = [held[at : at + chunk] for at in range(0, len(held), chunk)] or [[]]
    chunks = [
        Snapshot(seq=seq, index=index, hashes=pack_hashes(part)) for index, part in enumerate(parts)
    ]
    chunks[-1].last = True
    chunks[-1].digest.CopyFrom(digest(held))
    return chunks
