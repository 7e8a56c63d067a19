"""Who keeps what its summary promises: doubt from broken promises, and the way back from it.

A worker whose requests find much less cached than its summary said is doubted at once: its matches
count for what it kept lately, at most half. If its reports do not explain that soon, it is asked
for a snapshot. It is believed again when it has kept its promises for a while; or, since nobody may
ask it for anything now, some time after the snapshot, when little is needed for the next doubt,
which then lasts twice as long. Pure: seconds of any one clock that does not go back are passed in.
"""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gateway.fleet.trust import Belief, Trust
from gateway.fleet.worker import Life
from gateway.route.outcome import Outcome, Promise

MEMORY: Final = 16
"""Requests that are remembered of each worker."""
BROKEN: Final = 1 / 3
"""Of a promise, or of all remembered: when so much is missing it is broken."""
LIMIT: Final = 4
"""Broken promises that make a doubt, if tokens say so too."""
SECOND_LIMIT: Final = 2
"""The same after a doubt that was not dispelled; with fewer a doubt ends, if tokens say so too."""
GRACE: Final = 2.0
"""In which reports of evictions may come that happened before the first tokens of a request."""
FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 320.0


class Ask(NamedTuple):
    """A worker is to be asked for a snapshot. Args: its `life`; `why`, for logs."""

    life: Life
    why: str


class _Balance(NamedTuple):
    """Of requests. Args: tokens that were `promised`, and of these `missing`; `broken` promises."""

    promised: int
    missing: int
    broken: int

    @property
    def kept(self) -> float:
        """Share of the promised tokens that were there, or were withdrawn in time."""
        return 1 - self.missing / self.promised if self.promised else 1.0


@dataclass(slots=True)
class _Record:
    """Args:
    outcomes: of the last requests; their promises may still be withdrawn.
    limit: broken promises that make the next doubt.
    doubts: how many there were in a row.
    doubted: whether there is one now.
    ask_at: when to ask for a snapshot.
    until: when the doubt ends without news, if a snapshot came.
    replaced_at: when it came.
    """

    outcomes: deque[Outcome] = field(default_factory=lambda: deque(maxlen=MEMORY))
    limit: int = LIMIT
    doubts: int = 0
    doubted: bool = False
    ask_at: float | None = None
    until: float = 0.0
    replaced_at: float | None = None

    @property
    def kept(self) -> float:
        """Share of the promised tokens that were there, or were withdrawn in time."""
        return self.balance().kept

    def balance(self) -> _Balance:
        """Of the last requests."""
        promised = missing = broken = 0
        for outcome in self.outcomes:
            promised += outcome.promise.held_tokens
            if absent := outcome.missing:
                missing += absent
                broken += _is_broken(outcome.promise, absent)
        return _Balance(promised, missing, broken)

    @property
    def pause(self) -> float:
        """How long the present doubt lasts without news."""
        return min(FIRST_PAUSE * 2.0 ** (self.doubts - 1), LONGEST_PAUSE)

    def review(self, now: float) -> None:
        """Begin a doubt, or end it, for what is known of the last requests."""
        balance = self.balance()
        broken, kept = balance.broken, balance.kept
        if self.doubted:
            if broken < SECOND_LIMIT and kept > 1 - BROKEN / 2:
                # NOTE: before anyone was asked there was no reason for it after all.
                self.doubts -= self.ask_at is not None
                self.doubted, self.ask_at = False, None
        elif broken >= self.limit and kept <= 1 - BROKEN:
            self.doubted, self.replaced_at = True, None
            self.doubts += 1
            self.ask_at, self.until = now + GRACE, now + self.pause
        elif broken < SECOND_LIMIT and len(self.outcomes) == MEMORY:
            self.limit, self.doubts = LIMIT, 0

    def expire(self, now: float) -> None:
        """End a doubt whose time is over; or ask again if no snapshot came."""
        if not self.doubted or now < self.until:
            return
        if self.replaced_at is None:
            self.ask_at, self.until = now, now + self.pause
            return
        self.doubted, self.limit = False, SECOND_LIMIT
        self.outcomes.clear()

    def why(self) -> str:
        promised, missing, _ = self.balance()
        delivered = promised - missing
        return f"of {promised} prompt tokens that it promised lately {delivered} were there"


class Records:
    """Of all lives of workers from which a gateway has had requests served."""

    def __init__(self) -> None:
        self._records: dict[Life, _Record] = {}

    @property
    def doubting(self) -> bool:
        """Whether there is a doubt."""
        return any(record.doubted for record in self._records.values())

    def book(self, outcome: Outcome, now: float) -> None:
        """A request whose promise counts has begun."""
        promise = outcome.promise
        record = self._records.setdefault(promise.life, _Record())
        record.outcomes.append(outcome)
        is_news = record.replaced_at is not None and promise.made_at > record.replaced_at
        if record.doubted and is_news and _is_broken(promise, outcome.missing):
            record.until = now + record.pause
        record.review(now)

    def replaced(self, life: Life, now: float) -> None:
        """A snapshot has taken the place of the summary."""
        record = self._records.get(life)
        if record is not None and record.doubted:
            record.replaced_at, record.ask_at = now, None

    def due(self, now: float) -> list[Ask]:
        """Let doubts end whose reason or time is over; who is to be asked for a snapshot now."""
        asks = []
        for life, record in self._records.items():
            record.review(now)
            record.expire(now)
            if record.ask_at is not None and now >= record.ask_at:
                record.ask_at = None
                asks.append(Ask(life, record.why()))
        return asks

    def doubt(self, life: Life) -> Belief | None:
        """What is believed of the summary of `life` by its record; None when nothing is against it.

        `weight`: what it kept lately, at most half.
        """
        record = self._records.get(life)
        if record is None or not record.doubted:
            return None
        state = "a snapshot is awaited"
        if record.replaced_at is not None:
            state = "a snapshot has come, and has to prove itself"
        weight = min(Trust.SUSPECT.weight, record.kept)
        return Belief(Trust.SUSPECT, f"{record.why()}; {state}", weight)

    def kept(self, life: Life) -> float:
        """Share of the tokens promised lately that were there; 1 before the first."""
        record = self._records.get(life)
        return 1.0 if record is None else record.kept

    def keep(self, lives: Collection[Life]) -> None:
        """All others are over: forget them."""
        for life in self._records.keys() - lives:
            del self._records[life]


def _is_broken(promise: Promise, missing: int) -> bool:
    return missing >= BROKEN * promise.held_tokens
