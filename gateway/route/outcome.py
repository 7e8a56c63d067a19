"""What became of a request: what its worker was expected to hold, and what it really held.

Every prompt token counts once, by its fate. A *promise* is how much of a prompt the summary of the
chosen worker held when it was chosen. It is watched until the request ends: when the worker reports
meanwhile that some of it is gone, it was withdrawn in time, and nobody was wrong. Pure.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from radixgate.prefix import PrefixHash

from gateway.fleet.worker import Life
from gateway.route.reservations import Reservation
from gateway.route.tombstones import Tombstones


class Fate(Enum):
    """Of a prompt token; of those that fit, the first."""

    CACHED = "cached"  # The worker had its KV.
    STALE = "stale"  # It had not, though its summary said so.
    ELSEWHERE = "elsewhere"  # Another worker had it, by a summary that was trusted.
    EVICTED = "evicted"  # Somebody had it, and the last who had needed the room.
    NEW = "new"  # Nobody had it, as far as is remembered.


@dataclass(slots=True, eq=False, weakref_slot=True)
class Promise:
    """What was known of a prompt and its worker when that was chosen.

    Args:
        life: of the worker.
        prompt_tokens: in all.
        boundaries: of the prompt.
        stride: tokens from one boundary to the next.
        held_tokens: that the worker held by its reports: what is promised.
        expected_tokens: held, or on their way there.
        elsewhere_tokens: the most that another held which was trusted.
        in_sync: whether the worker's reports and its summary agreed then.
        made_at: when, in seconds.
        watched: whether `withdrawn` is kept current.
        withdrawn: it was reported since that not all of it is held any more.
    """

    life: Life
    prompt_tokens: int
    boundaries: Sequence[PrefixHash]
    stride: int
    held_tokens: int
    expected_tokens: int
    elsewhere_tokens: int
    in_sync: bool
    made_at: float
    watched: bool = False
    withdrawn: bool = False

    @property
    def counts(self) -> bool:
        """Whether it speaks for the worker's summary if it is kept, and against it if not."""
        return bool(self.held_tokens) and self.in_sync and self.watched

    @property
    def stands(self) -> bool:
        """Whether all of it has to be there."""
        return self.watched and not self.withdrawn


class Outcome(NamedTuple):
    """Args: the `promise`; `cached_tokens` that the worker had; all prompt tokens by `fates`."""

    promise: Promise
    cached_tokens: int
    fates: Mapping[Fate, int]

    @property
    def kept_tokens(self) -> int:
        """Of those that were promised, what was there or was withdrawn in time."""
        return self.promise.held_tokens - self.fates[Fate.STALE]


def outcome(promise: Promise, cached_tokens: int, tombstones: Tombstones) -> Outcome:
    """Judge a request of which `cached_tokens` of the prompt were cached where it went."""
    tokens, stride = promise.prompt_tokens, promise.stride
    cached = min(cached_tokens, tokens)
    known = max(cached, promise.held_tokens) if promise.stands else cached
    found = max(known, promise.elsewhere_tokens)
    first = found // stride
    lost = max(found, (first + tombstones.run(promise.boundaries, first)) * stride)
    fates = {
        Fate.CACHED: cached,
        Fate.STALE: known - cached,
        Fate.ELSEWHERE: found - known,
        Fate.EVICTED: lost - found,
        Fate.NEW: tokens - lost,
    }
    return Outcome(promise, cached, fates)


class Watch:
    """Sees which promises are withdrawn, each from its reservation to the end of that.

    Held sets are prefix-closed, so the last boundary of a promise goes with the first that goes.
    """

    def __init__(self) -> None:
        self._promises: dict[Reservation, Promise] = {}
        # Of each worker, by the last boundary promised.
        self._last: defaultdict[str, dict[PrefixHash, set[Promise]]] = defaultdict(dict)

    def __len__(self) -> int:
        return len(self._promises)

    def begin(self, reservation: Reservation, promise: Promise) -> None:
        """Watch `promise`, made for `reservation`."""
        self._promises[reservation] = promise
        promise.watched = True
        if promise.held_tokens:
            same = self._last[promise.life.worker].setdefault(_last(promise), set())
            same.add(promise)

    def removed(self, worker: str, hashes: Collection[PrefixHash]) -> None:
        """`worker` has reported that it holds `hashes` no longer."""
        watched = self._last.get(worker)
        if watched:
            for name in watched.keys() & hashes:
                for promise in watched.pop(name):
                    promise.withdrawn = True

    def end(self, reservation: Reservation) -> None:
        """`reservation` has ended: what was promised for it counts only if it was judged before."""
        promise = self._promises.pop(reservation, None)
        if promise is None:
            return
        if promise.held_tokens and not promise.withdrawn:
            watched = self._last[promise.life.worker]
            same = watched[_last(promise)]
            same.remove(promise)
            if not same:
                del watched[_last(promise)]
        promise.watched = False

    def check_integrity(self) -> None:
        """Raises AssertionError when what is watched by boundary is not what was begun."""
        watched = [
            promise
            for of_worker in self._last.values()
            for promises in of_worker.values()
            for promise in promises
        ]
        live = {promise for promise in self._promises.values() if promise.held_tokens}
        assert len(watched) == len(set(watched))
        assert set(watched) == {promise for promise in live if not promise.withdrawn}
        assert all(promises for of_worker in self._last.values() for promises in of_worker.values())


def _last(promise: Promise) -> PrefixHash:
    return promise.boundaries[promise.held_tokens // promise.stride - 1]
