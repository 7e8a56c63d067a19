"""The mirror: one gateway's copy, in memory, of the summaries of one model pool.

`apply` takes the pool's events in order and tells a listener, the route index, what changed. It is
pure and idempotent: an event of an older life or an older state changes nothing, so the mirror may
be fed from Redis and from reports directly. An event that does not follow from what the mirror
holds is refused, and the caller loads that worker as a whole: a mirror that is wrong repairs itself
in the same way as one that is behind.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol

from radixgate.digest import SetDigest
from radixgate.prefix import PrefixHash

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


class MirrorListener(Protocol):
    """Hears each change of a summary once; a worker's hashes are exactly those stored - removed."""

    def stored(self, worker: str, hashes: Collection[PrefixHash]) -> None:
        """None of `hashes` was held before."""

    def removed(
        self, worker: str, hashes: Collection[PrefixHash], evicted: Collection[PrefixHash]
    ) -> None:
        """All of `hashes` were held before; those of them that are `evicted` had to make room."""

    def forgotten(self, worker: str, held: dict[PrefixHash, None]) -> None:
        """The worker holds nothing more: it left, or a new life of it began.

        It held `held`, which is the listener's from now on: dropping it here would take time.
        """

    def cleared(self) -> None:
        """What was heard so far may be wrong: nobody holds anything, until it is heard again."""


@dataclass(slots=True)
class Summary:
    """What one life of a worker holds after its change `seq`.

    Its `hashes` are the keys of a dict, which the garbage collector does not visit, being of
    integers; it would stop the gateway to visit every hash in a set.
    """

    registration: Registration
    seq: int = 0
    digest: SetDigest = field(default_factory=SetDigest)
    hashes: dict[PrefixHash, None] = field(default_factory=dict)

    @property
    def epoch(self) -> int:
        """The life it belongs to."""
        return self.registration.epoch


class Mirror:
    """Args: `listener` hears of every change, before `apply` or `load` returns."""

    def __init__(self, listener: MirrorListener) -> None:
        self._listener = listener
        self._summaries: dict[str, Summary] = {}
        # NOTE: outlives the summaries, so that a late event cannot bring back a life that is over.
        self._newest_epoch: dict[str, int] = {}

    def __contains__(self, worker: str) -> bool:
        return worker in self._summaries

    def get(self, worker: str) -> Summary | None:
        """The summary of `worker`, to read, not to change."""
        return self._summaries.get(worker)

    def summaries(self) -> Collection[Summary]:
        """All summaries, to read, not to change."""
        return self._summaries.values()

    def newest_epoch(self, worker: str) -> int:
        """The epoch of the latest life of `worker` ever seen here; 0 for none."""
        return self._newest_epoch.get(worker, 0)

    def apply(self, event: Event) -> bool:
        """Take one event.

        Returns: False when it does not follow from what is here: the worker has to be loaded.
        """
        if event.epoch < self.newest_epoch(event.worker):
            return True
        match event:
            case Registered():
                return self._register(event)
            case Detached():
                return True
            case Departed():
                self._forget(event.worker)
                return True
        summary = self._summaries.get(event.worker)
        if summary is None or summary.epoch != event.epoch:
            return False
        match event:
            case Changed():
                return self._change(summary, event)
            case Replaced():
                return self._has_reached(summary, event.seq, event.digest)
            case Loaded():
                return not event.synced or self._has_reached(
                    summary, event.load.seq, digest_of(event.load.digest)
                )

    def contradiction(self, refused: Event) -> str:
        """What is here and what an event that was refused says, if both are of one state.

        Empty when the mirror is only behind, which is no fault of its own.
        """
        summary = self._summaries.get(refused.worker)
        if summary is None or summary.epoch != refused.epoch:
            return ""
        match refused:
            case Changed(seq=seq) if seq == summary.seq + 1:
                here = summary.digest.changed(refused.stored, refused.removed)
                there = refused.digest
            case Replaced(seq=seq) if seq == summary.seq:
                here, there = summary.digest, refused.digest
            case Loaded(load=load) if load.seq == summary.seq:
                here, there = summary.digest, digest_of(load.digest)
            case _:
                return ""
        return (
            f"worker {refused.worker} epoch {refused.epoch} at seq {summary.seq}: here"
            f" {len(summary.hashes)} hashes and {here}, in {type(refused).__name__} {there}"
        )

    def load(self, record: WorkerRecord) -> bool:
        """Take the whole state of one worker, unless what is here is later.

        Returns: False when its hashes do not have the digest that it names.
        """
        registration = record.registration
        worker = registration.worker
        if registration.epoch < self.newest_epoch(worker):
            return True
        summary = self._summaries.get(worker)
        if summary is None or summary.epoch != registration.epoch:
            summary = self._begin(registration)
        if summary.seq > record.seq:
            return True
        summary.registration = registration
        if SetDigest.of(summary.hashes) != summary.digest:
            self._tell_all()
        held = SetDigest.of(record.hashes)
        self._replace(summary, record.seq, held, record.hashes)
        return held == record.digest

    def recounted(self, summary: Summary, claimed: SetDigest, counted: SetDigest) -> None:
        """When the digest of `summary` was `claimed`, its hashes had another one, `counted`.

        The difference goes into the digest, so that the next report of the worker shows it.
        """
        summary.digest = SetDigest(
            summary.digest.count + counted.count - claimed.count,
            summary.digest.xor ^ counted.xor ^ claimed.xor,
        )
        self._tell_all()

    def check_integrity(self) -> None:
        """Raises AssertionError when a digest or an epoch is not what it should be."""
        for worker, summary in self._summaries.items():
            assert summary.registration.worker == worker
            assert summary.epoch == self._newest_epoch[worker], worker
            assert summary.digest == SetDigest.of(summary.hashes), worker

    def _register(self, event: Registered) -> bool:
        summary = self._summaries.get(event.worker)
        if summary is None or summary.epoch != event.epoch:
            summary = self._begin(event.registration)
        summary.registration = event.registration
        return summary.seq >= event.seq

    def _begin(self, registration: Registration) -> Summary:
        self._forget(registration.worker)
        summary = self._summaries[registration.worker] = Summary(registration)
        self._newest_epoch[registration.worker] = registration.epoch
        return summary

    def _change(self, summary: Summary, event: Changed) -> bool:
        if event.seq <= summary.seq:
            return True
        digest = summary.digest.changed(event.stored, event.removed)
        if (
            event.seq != summary.seq + 1
            or digest != event.digest
            or not summary.hashes.keys().isdisjoint(event.stored)
            or not all(map(summary.hashes.__contains__, event.removed))
        ):
            return False
        self._move(summary, event.stored, event.removed, event.evicted)
        summary.seq, summary.digest = event.seq, digest
        return True

    def _replace(
        self, summary: Summary, seq: int, digest: SetDigest, hashes: frozenset[PrefixHash]
    ) -> None:
        held = summary.hashes.keys()
        self._move(summary, hashes - held, held - hashes)
        summary.seq, summary.digest = seq, digest

    def _move(
        self,
        summary: Summary,
        stored: Collection[PrefixHash],
        removed: Collection[PrefixHash],
        evicted: Collection[PrefixHash] = (),
    ) -> None:
        worker = summary.registration.worker
        if removed:
            for name in removed:
                del summary.hashes[name]
            self._listener.removed(worker, removed, evicted)
        if stored:
            summary.hashes.update(dict.fromkeys(stored))
            self._listener.stored(worker, stored)

    def _tell_all(self) -> None:
        """Hashes came or went unheard: the listener hears of all that is here, from the start."""
        self._listener.cleared()
        for worker, summary in self._summaries.items():
            if summary.hashes:
                self._listener.stored(worker, summary.hashes)

    def _forget(self, worker: str) -> None:
        summary = self._summaries.pop(worker, None)
        if summary is not None:
            self._listener.forgotten(worker, summary.hashes)

    @staticmethod
    def _has_reached(summary: Summary, seq: int, digest: SetDigest) -> bool:
        if summary.seq != seq:
            return summary.seq > seq
        return summary.digest == digest and len(summary.hashes) == digest.count
