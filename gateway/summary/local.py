"""The sink that is used while Redis is away: reports change this gateway's mirror directly.

Same rules, same verdicts as the store. What is taken here never reaches Redis by itself: when Redis
is back its summary lags behind the worker's next report, which asks the worker for a snapshot.
"""

from collections import defaultdict
from collections.abc import Callable

from radixgate.digest import SetDigest
from radixgate.prefix import PrefixHash, unpack_hashes
from radixgate.v1.sync_pb2 import Delta, Hello, Load, Snapshot

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
    digest_of,
)
from gateway.summary.mirror import Mirror, Summary
from gateway.summary.sink import Outcome, PoolMismatchError, StaleEpochError, Verdict


class LocalSink:
    """The `SummarySink` over the mirror.

    Args:
        mirror: what is known of the pool.
        take: gives an event to the mirror and to all who watch the pool; what `Mirror.apply` says.
    """

    def __init__(self, mirror: Mirror, take: Callable[[Event], bool]) -> None:
        self._mirror = mirror
        self._take = take
        self._staged: defaultdict[str, list[PrefixHash]] = defaultdict(list)

    async def register(self, hello: Hello) -> Outcome:
        """As `SummarySink` says."""
        registration = Registration.of(hello)
        known = self._find(hello.worker, hello.epoch)
        for other in self._mirror.summaries():
            theirs = other.registration
            if theirs.worker != hello.worker and theirs.shape != registration.shape:
                raise PoolMismatchError(
                    registration, f"worker {theirs.worker} there has {theirs.shape}"
                )
        seq = known.seq if known else 0
        self._take(Registered(registration, seq))
        return Outcome(Verdict.OK, seq)

    async def apply(self, worker: str, epoch: int, delta: Delta) -> Outcome:
        """As `SummarySink` says."""
        event = Changed.of(worker, epoch, delta)
        summary = self._find(worker, epoch)
        if summary is None:
            return Outcome(Verdict.UNKNOWN, 0)
        if not self._take(event):
            return _resync(summary, f"Delta {delta.seq} does not follow")
        return Outcome(Verdict.OK, summary.seq)

    async def load(self, worker: str, epoch: int, load: Load) -> Outcome:
        """As `SummarySink` says."""
        summary = self._find(worker, epoch)
        if summary is None:
            return Outcome(Verdict.UNKNOWN, 0)
        synced = (load.seq, digest_of(load.digest)) == (summary.seq, summary.digest)
        self._take(Loaded(worker, epoch, load, synced))
        if not synced:
            return _resync(summary, f"the worker is at seq {load.seq} or its digest differs")
        return Outcome(Verdict.OK, summary.seq)

    async def stage(self, worker: str, epoch: int, snapshot: Snapshot) -> Outcome:
        """As `SummarySink` says."""
        hashes = unpack_hashes(snapshot.hashes)
        summary = self._find(worker, epoch)
        if summary is None:
            return Outcome(Verdict.UNKNOWN, 0)
        if snapshot.seq < summary.seq:
            return _resync(summary, f"the snapshot is of seq {snapshot.seq}, the summary is later")
        if snapshot.index == 0:
            self._staged.pop(worker, None)
        self._staged[worker] += hashes
        if snapshot.last:
            return self._swap(summary, snapshot, self._staged.pop(worker))
        return Outcome(Verdict.OK, summary.seq)

    async def leave(self, worker: str, epoch: int, *, departed: bool) -> Outcome:
        """As `SummarySink` says."""
        self._staged.pop(worker, None)
        if self._find(worker, epoch) is None:
            return Outcome(Verdict.UNKNOWN, 0)
        self._take(Departed(worker, epoch) if departed else Detached(worker, epoch))
        return Outcome(Verdict.OK, 0)

    def _find(self, worker: str, epoch: int) -> Summary | None:
        newest = self._mirror.newest_epoch(worker)
        if epoch < newest:
            raise StaleEpochError(worker, epoch, newest)
        summary = self._mirror.get(worker)
        return summary if summary and summary.epoch == epoch else None

    def _swap(self, summary: Summary, last: Snapshot, staged: list[PrefixHash]) -> Outcome:
        hashes, digest = frozenset(staged), digest_of(last.digest)
        if len(hashes) != len(staged) or SetDigest.of(hashes) != digest:
            return _resync(summary, f"the digest of the snapshot of seq {last.seq} differs")
        registration = summary.registration
        self._mirror.load(WorkerRecord(registration, last.seq, digest, hashes))
        self._take(Replaced(registration.worker, registration.epoch, last.seq, digest))
        return Outcome(Verdict.OK, last.seq)


def _resync(summary: Summary, detail: str) -> Outcome:
    return Outcome(Verdict.RESYNC, summary.seq, detail)
