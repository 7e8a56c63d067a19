"""What became of a request: what its worker was expected to hold, and what it really held.

Every prompt token counts once, by its fate. A *promise* is how much of a prompt the summary of the
chosen worker held when it was chosen. It is watched for some time after the first tokens: when the
worker reports meanwhile that some of it is gone, it was withdrawn, and nobody was wrong. Pure.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from radixgate.prefix import PrefixHash

from gateway.fleet.worker import Life


class Fate(Enum):
    """Of a prompt token; of those that fit, the first."""

    CACHED = "cached"  # The worker had its KV.
    STALE = "stale"  # It had not, though its summary said so.
    ELSEWHERE = "elsewhere"  # Another worker had it, by a summary that was trusted.
    EVICTED = "evicted"  # Somebody had it, and needed the room.
    NEW = "new"  # Nobody had it, as far as is remembered.


@dataclass(slots=True, eq=False)
class Promise:
    """What was known of a prompt and its worker when that was chosen.

    Args:
        life: of the worker.
        prompt_tokens: in all.
        held_tokens: that the worker held by its reports: what is promised.
        last: the boundary where these end; 0 if there are none.
        expected_tokens: held, or on their way there.
        elsewhere_tokens: the most that another held which was trusted.
        evicted_tokens: where what is held by anyone trusted, and what was evicted behind it, ends.
        in_sync: whether the worker's reports and its summary agreed then.
        made_at: when, in seconds.
        booked: the request has begun, so its outcome is, or will be, judged.
        withdrawn: it was reported since that not all of it is held any more.
        lapsed: it ended unwatched before it was booked, and says nothing.
    """

    life: Life
    prompt_tokens: int
    held_tokens: int
    last: PrefixHash
    expected_tokens: int
    elsewhere_tokens: int
    evicted_tokens: int
    in_sync: bool
    made_at: float
    booked: bool = False
    withdrawn: bool = False
    lapsed: bool = False

    @property
    def counts(self) -> bool:
        """Whether it speaks for the worker's summary if it is kept, and against it if not."""
        return bool(self.held_tokens) and self.in_sync and not self.lapsed


class Outcome(NamedTuple):
    """Args: the `promise`; how many prompt tokens the worker had `cached`.

    What is stale turns out to be evicted when the promise is withdrawn after all.
    """

    promise: Promise
    cached: int

    @property
    def missing(self) -> int:
        """Tokens that were promised, were not there, and were not withdrawn in time."""
        promise = self.promise
        missing = promise.held_tokens - self.cached
        return 0 if missing <= 0 or promise.withdrawn or promise.lapsed else missing

    def fates(self) -> Mapping[Fate, int]:
        """All prompt tokens, by what became of them."""
        promise, known = self.promise, self.cached + self.missing
        found = max(known, promise.elsewhere_tokens)
        lost = max(found, promise.evicted_tokens)
        return {
            Fate.CACHED: self.cached,
            Fate.STALE: known - self.cached,
            Fate.ELSEWHERE: found - known,
            Fate.EVICTED: lost - found,
            Fate.NEW: promise.prompt_tokens - lost,
        }


class Watch:
    """Sees which promises are withdrawn.

    Held sets are prefix-closed, so the last boundary of a promise goes with the first that goes.
    """

    def __init__(self) -> None:
        # Of each worker, by the last boundary promised.
        self._promises: defaultdict[str, dict[PrefixHash, set[Promise]]] = defaultdict(dict)

    def begin(self, promise: Promise) -> None:
        """Watch `promise`."""
        if promise.held_tokens:
            self._promises[promise.life.worker].setdefault(promise.last, set()).add(promise)

    def removed(self, worker: str, hashes: Collection[PrefixHash]) -> None:
        """`worker` has reported that it holds `hashes` no longer."""
        watched = self._promises.get(worker)
        if watched:
            for name in watched.keys() & hashes:
                for promise in watched.pop(name):
                    promise.withdrawn = True

    def end(self, promise: Promise) -> None:
        """Watch it no longer. Idempotent."""
        watched = self._promises.get(promise.life.worker, {})
        same = watched.get(promise.last, set())
        if promise in same:
            same.remove(promise)
            if not same:
                del watched[promise.last]

    def watched(self) -> list[Promise]:
        """All that are watched and not withdrawn."""
        return [
            promise
            for of_worker in self._promises.values()
            for promises in of_worker.values()
            for promise in promises
        ]
