"""How far a worker's summary can be believed now; pure.

LIVE needs a current load report that agrees with the summary. Anything less is SUSPECT: the worker
still serves, but its matches count half. LOST workers get no requests.
"""

from enum import Enum
from typing import NamedTuple

SILENCE_LIMIT = 0.5
"""Share of the lease after which a worker that says nothing is suspect."""


class Trust(Enum):
    """`weight` is that of a matched token in a routing decision."""

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
    """Args: `trust`; `reason` in words for people."""

    trust: Trust
    reason: str


IN_SYNC = Belief(Trust.LIVE, SyncState.SYNCED.value)


def believe(
    state: SyncState, silence: float, lease: float, remaining: float | None, problem: str = ""
) -> Belief:
    """Judge one worker.

    Args:
        state: of its summary.
        silence: seconds since the last news of it.
        lease: seconds of silence after which it is lost.
        remaining: seconds that are left of its lease; None while no news can arrive.
        problem: why the worker cannot be used at all; empty when it can.
    """
    if problem:
        return Belief(Trust.LOST, problem)
    if remaining is None:
        return Belief(Trust.SUSPECT, f"Redis is away, last heard of {silence:.1f} s ago")
    if remaining <= 0:
        return Belief(Trust.LOST, f"silent for {silence:.1f} s, its lease was {lease:g} s")
    if state is not SyncState.SYNCED:
        return Belief(Trust.SUSPECT, state.value)
    if silence > lease * SILENCE_LIMIT:
        return Belief(Trust.SUSPECT, f"silent for {silence:.1f} s")
    return IN_SYNC
