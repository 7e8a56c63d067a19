"""How far a worker's summary can be believed now; pure.

LIVE needs a current load report that agrees with the summary, and requests that find what the
summary says. Anything less is SUSPECT: the worker still serves, but its matches count half or less.
LOST workers get no requests.
"""

from enum import Enum
from typing import NamedTuple

SILENCE_LIMIT = 0.5
"""Share of the lease after which a worker that says nothing is suspect."""


class Trust(Enum):
    """`weight` is that of a matched token in a routing decision, at most."""

    LIVE = 1.0
    SUSPECT = 0.5
    LOST = 0.0

    def __init__(self, weight: float) -> None:
        self.weight = weight


class SyncState(Enum):
    """What the last event said of the worker's summary."""

    JOINING = "registered, no load report yet"
    SYNCED = "in sync"
    RESYNCING = "its summary differs from what it reports; a resync is under way"
    DETACHED = "its KvSync stream ended"


class Belief(NamedTuple):
    """Args: `trust`; `reason` in words for people; `weight` of a matched token."""

    trust: Trust
    reason: str
    weight: float

    @classmethod
    def of(cls, trust: Trust, reason: str) -> "Belief":
        """With the most weight that `trust` has."""
        return cls(trust, reason, trust.weight)


IN_SYNC = Belief.of(Trust.LIVE, SyncState.SYNCED.value)


def believe(
    state: SyncState, silence: float, lease: float, remaining: float | None, problem: str = ""
) -> Belief:
    """Judge one worker by its reports.

    Args:
        state: of its summary.
        silence: seconds since the last news of it.
        lease: seconds of silence after which it is lost.
        remaining: seconds that are left of its lease; None while no news can arrive.
        problem: why the worker cannot be used at all; empty when it can.
    """
    if problem:
        return Belief.of(Trust.LOST, problem)
    if remaining is None:
        return Belief.of(Trust.SUSPECT, f"Redis is away, last heard of {silence:.1f} s ago")
    if remaining <= 0:
        return Belief.of(Trust.LOST, f"silent for {silence:.1f} s, its lease was {lease:g} s")
    if state is not SyncState.SYNCED:
        return Belief.of(Trust.SUSPECT, state.value)
    if silence > lease * SILENCE_LIMIT:
        return Belief.of(Trust.SUSPECT, f"silent for {silence:.1f} s")
    return IN_SYNC


def doubted(reported: Belief, doubt: Belief) -> Belief:
    """What is left of what reports say when its record speaks against a worker too."""
    match reported.trust:
        case Trust.LOST:
            return reported
        case Trust.LIVE:
            return doubt
        case Trust.SUSPECT:
            reason = f"{reported.reason}; {doubt.reason}"
            return Belief(Trust.SUSPECT, reason, min(reported.weight, doubt.weight))
