"""Two indexes of what workers hold, fed alike: ours, and Dynamo's when it is installed."""

import json
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from radixgate.digest import SetDigest
from radixgate.namespace import Namespace
from radixgate.prefix import boundary_hashes, pack_hashes, pack_tokens
from radixgate.v1.sync_pb2 import Delta, Digest, Load, Removal, RemovalReason

from gateway.fleet.trust import SyncState
from gateway.fleet.worker import FleetWorker
from gateway.route.router import Estimate, Prompt, Router
from gateway.summary.events import Changed, Departed, Registered, Registration
from gateway.summary.mirror import Mirror
from gateway.summary.outbox import Outbox

try:
    from dynamo._core import RadixTree, compute_block_hash_for_seq
except ImportError:
    RadixTree = compute_block_hash_for_seq = None

HAS_DYNAMO = RadixTree is not None

WORKERS = 64
STRIDE = 64
SEED = Namespace("bench").seed()

Names = Sequence[int]
"""Along a prompt: prefix hashes, or Dynamo's hashes of blocks of the same length."""


class Run(NamedTuple):
    """`names` that `worker` stores at once, the first of a prompt or what follows on `parent`."""

    worker: int
    names: Names
    parent: int | None = None


class Ours:
    """A mirror and the router that listens to it, fed with deltas as from the stream."""

    def __init__(self) -> None:
        self.router = Router(Outbox("bench"))
        self.workers = [_worker(number) for number in range(WORKERS)]
        self._mirror = Mirror(self.router)
        self._seq = [0] * WORKERS
        self._digest = [SetDigest()] * WORKERS
        for worker in self.workers:
            self._mirror.apply(Registered(worker.registration, 0))

    def event(self, run: Run, evicted: Names = ()) -> bytes:
        """The next Delta of a worker, to be applied before another is made."""
        worker = run.worker
        self._seq[worker] += 1
        digest = self._digest[worker] = self._digest[worker].changed(run.names, evicted)
        capacity = RemovalReason.REMOVAL_REASON_CAPACITY
        removal = Removal(reason=capacity, hashes=pack_hashes(evicted))
        return Delta(
            seq=self._seq[worker],
            stored=pack_hashes(run.names),
            removed=[removal] if evicted else [],
            digest=Digest(count=digest.count, xor=digest.xor),
        ).SerializeToString()

    def apply(self, run: Run, event: bytes) -> None:
        """What the tail of the stream does with one Delta."""
        name = self.workers[run.worker].id
        assert self._mirror.apply(Changed.of(name, 1, Delta.FromString(event)))

    def forget(self, worker: int) -> None:
        """The worker is lost."""
        self._mirror.apply(Departed(self.workers[worker].id, 1))

    def names(self, ids: list[int]) -> Names:
        """Of a prompt."""
        return boundary_hashes(pack_tokens(ids), STRIDE, SEED)

    def decide(self, packed: bytes) -> list[Estimate]:
        """Packed token ids in, ranked candidates out."""
        return self.router.estimate(Prompt(packed, STRIDE, SEED), self.workers, 1.0)


class Dynamo:
    """`RadixTree`, which has a thread of its own, fed with JSON events."""

    def __init__(self) -> None:
        self._tree = RadixTree()
        self._events = 0

    def event(self, run: Run) -> bytes:
        """That a worker has stored blocks."""
        self._events += 1
        # NOTE: names are unique here, so one may stand for the block and for its prefix.
        blocks = [{"block_hash": name, "tokens_hash": name} for name in run.names]
        data = {"stored": {"parent_hash": run.parent, "blocks": blocks}}
        return json.dumps({"event_id": self._events, "data": data}).encode()

    def apply(self, run: Run, event: bytes) -> None:
        """As one event of the worker's engine."""
        self._tree.apply_event(run.worker, event)

    def forget(self, worker: int) -> None:
        """The worker is lost."""
        self._tree.remove_worker(worker)

    def names(self, ids: list[int]) -> Names:
        """Of a prompt."""
        names: list[int] = compute_block_hash_for_seq(ids, STRIDE)
        return names

    def decide(self, ids: list[int]) -> dict[Any, int]:
        """Token ids in, blocks held by each worker out, not ranked."""
        scores: dict[Any, int] = self._tree.find_matches(self.names(ids)).scores
        return scores


def _worker(number: int) -> FleetWorker:
    rng = random.Random(number)
    name = f"worker-{number}"
    load = Load(
        prefill_tokens_per_second=rng.uniform(9_000, 11_000),
        backlog_tokens=rng.randrange(4_000),
        running=rng.randrange(16),
        max_running=32,
        free_blocks=rng.randrange(10_000),
        total_blocks=70_000,
        itl_ms=20,
        regret_ms_per_block=1,
    )
    registration = Registration(name, 1, f"{name}:50051", "m", "f", 16, STRIDE, 70_000)
    return FleetWorker(
        registration, lease=5.0, heard_at=0.0, deadline=5.0, state=SyncState.SYNCED, load=load
    )
