"""The boundary ledger: what the held set was at the last report, and what has changed since.

The engine writes what entered and left the tree, the reporter reads the net change. A boundary that
came and went between two reads is in neither. Boundaries are counted, so that two prefixes with one
hash are reported stored with the first and removed with the last.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum

from radixgate.digest import SetDigest
from radixgate.prefix import PrefixHash


class Reason(Enum):
    """Why boundaries are no longer held."""

    CAPACITY = "capacity"
    CLEARED = "cleared"


@dataclass(frozen=True, slots=True)
class Change:
    """The net change from report `seq - 1` to `seq`; `digest` is of the whole set after it."""

    seq: int
    stored: list[PrefixHash]
    removed: dict[Reason, list[PrefixHash]]
    digest: SetDigest


@dataclass(frozen=True, slots=True)
class Held:
    """The whole set at report `seq`."""

    seq: int
    hashes: list[PrefixHash]
    digest: SetDigest


class KvEvents:
    """One ledger for one epoch; `seq` counts its reports from 1.

    Args:
        lock: held around each operation. A `threading.Lock()` when the reporter runs in another
            thread than the engine, `nullcontext()` in one thread.

    Attributes:
        on_pending: called by the thread that wrote, outside the lock, when there is a first change
            to `take`.
    """

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        self.on_pending: Callable[[], None] = _nobody
        self._lock = lock
        self._seq = 0
        self._digest = SetDigest()
        self._held: dict[PrefixHash, int] = {}
        self._stored: dict[PrefixHash, None] = {}
        self._removed: dict[PrefixHash, Reason] = {}

    @property
    def reported(self) -> tuple[int, SetDigest]:
        """The seq of the last report, and the digest after it."""
        with self._lock:
            return self._seq, self._digest

    def stored(self, hashes: Iterable[PrefixHash]) -> None:
        """Boundaries whose blocks have been computed and entered the tree."""
        with self._lock:
            was_idle = self._idle()
            for name in hashes:
                count = self._held.get(name, 0)
                self._held[name] = count + 1
                if count == 0 and self._removed.pop(name, None) is None:
                    self._stored[name] = None
            first = was_idle and not self._idle()
        if first:
            self.on_pending()

    def removed(self, hashes: Iterable[PrefixHash], reason: Reason) -> None:
        """Boundaries whose last block left the tree; each was `stored` before."""
        with self._lock:
            was_idle = self._idle()
            for name in hashes:
                count = self._held.pop(name)
                if count > 1:
                    self._held[name] = count - 1
                elif name in self._stored:
                    del self._stored[name]
                else:
                    self._removed[name] = reason
            first = was_idle and not self._idle()
        if first:
            self.on_pending()

    def held(self) -> Held:
        """The whole set now, reported or not; `seq` is that of the last report. Changes nothing."""
        with self._lock:
            hashes = list(self._held)
            return Held(self._seq, hashes, SetDigest.of(hashes))

    def take(self) -> Change | None:
        """The next report, or None when the set is what it was at the last one."""
        with self._lock:
            return self._take()

    def snapshot(self) -> Held:
        """The whole set now.

        Changes that were pending become report `seq` without being returned by `take`: what `take`
        returns next is the change from this snapshot on, as report `seq + 1`.
        """
        with self._lock:
            self._take()
            return Held(self._seq, list(self._held), self._digest)

    def _idle(self) -> bool:
        return not self._stored and not self._removed

    def _take(self) -> Change | None:
        if self._idle():
            return None
        by_reason: dict[Reason, list[PrefixHash]] = {}
        for name, reason in self._removed.items():
            by_reason.setdefault(reason, []).append(name)
        self._seq += 1
        self._digest = self._digest.changed(self._stored, self._removed)
        change = Change(self._seq, list(self._stored), by_reason, self._digest)
        self._stored.clear()
        self._removed.clear()
        return change


def _nobody() -> None:
    """The reporter that is not there yet."""
