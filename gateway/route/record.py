"""Who keeps what its summary promises: doubt from broken promises, and the way back from it.

A worker whose requests find much less cached than its summary said is doubted: its matches count
for what it kept lately, at most half, and it is asked for a snapshot. It is believed again when it
has kept its promises for a while; or, since nobody may ask it for anything now, some time after the
snapshot, when little is needed for the next doubt, which then lasts twice as long. Pure: seconds of
any one clock that does not go back are passed in.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from gateway.fleet.trust import Belief, Trust
from gateway.fleet.worker import Life

MEMORY: Final = 16
"""Requests: the weight of each fades by this part with the next one."""
BROKEN: Final = 1 / 3
"""Of a promise, or of all lately: when so much is missing it is broken."""
LIMIT: Final = 4.0
"""Broken promises lately that make a doubt, if tokens say so too."""
FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 320.0


class Ask(NamedTuple):
    """A worker is to be asked for a snapshot. Args: its `life`; `why`, for logs."""

    life: Life
    why: str


@dataclass(slots=True)
class _Record:
    """Sums that fade: tokens `promised`, `missing` of these, and `broken` promises.

    Doubted, if it is, until `until` at the latest, for the `doubts`-th time without being cleared.
    `asking` for a snapshot; the last one came at `replaced_at`.
    """

    promised: float = 0.0
    missing: float = 0.0
    broken: float = 0.0
    doubted: bool = False
    doubts: int = 0
    until: float = 0.0
    asking: bool = False
    replaced_at: float | None = None

    @property
    def kept(self) -> float:
        """Share of the promised tokens that was delivered."""
        return max(0.0, 1.0 - self.missing / self.promised) if self.promised else 1.0

    @property
    def pause(self) -> float:
        """How long the present doubt lasts without news."""
        return min(FIRST_PAUSE * 2.0 ** (self.doubts - 1), LONGEST_PAUSE)

    def add(self, promised: int, missing: int) -> bool:
        """Take one request; whether it broke its promise."""
        fading = 1 - 1 / MEMORY
        is_broken = missing >= BROKEN * promised
        self.promised = self.promised * fading + promised
        self.missing = self.missing * fading + missing
        self.broken = self.broken * fading + is_broken
        return is_broken

    def begin_doubt(self, now: float) -> None:
        self.doubted, self.asking, self.replaced_at = True, True, None
        self.doubts += 1
        self.until = now + self.pause

    def parole(self) -> None:
        """Believe it again, though one or two broken promises are enough for the next doubt."""
        self.doubted = False
        self.promised = self.missing = 0.0
        self.broken = LIMIT - 1

    def why(self) -> str:
        delivered, promised = self.promised - self.missing, self.promised
        return f"of {promised:.0f} prompt tokens that it promised lately {delivered:.0f} were there"


class Records:
    """Of all lives of workers from which a gateway has had requests served."""

    def __init__(self) -> None:
        self._records: dict[Life, _Record] = {}

    def book(self, life: Life, promised: int, kept: int, made_at: float, now: float) -> bool:
        """A request was promised so many cached tokens, at `made_at`; so many of these were kept.

        Returns: whether that made a doubt.
        """
        record = self._records.setdefault(life, _Record())
        is_broken = record.add(promised, promised - kept)
        share = 1 - record.kept
        if record.doubted:
            if record.broken < LIMIT / 2 and share < BROKEN / 2:
                record.doubted = record.asking = False
            elif is_broken and record.replaced_at is not None and made_at > record.replaced_at:
                record.until = now + record.pause
            return False
        if record.broken < 1:
            record.doubts = 0
        if record.broken < LIMIT or share < BROKEN:
            return False
        record.begin_doubt(now)
        return True

    def replaced(self, life: Life, now: float) -> None:
        """A snapshot has taken the place of the summary."""
        record = self._records.get(life)
        if record is not None and record.doubted:
            record.replaced_at, record.asking = now, False

    def due(self, now: float) -> list[Ask]:
        """Let doubts end whose time is over; who is to be asked for a snapshot now."""
        asks = []
        for life, record in self._records.items():
            if record.doubted and now >= record.until:
                if record.replaced_at is not None:
                    record.parole()
                else:
                    record.asking, record.until = True, now + record.pause
            if record.asking:
                record.asking = False
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
        """Share of the tokens promised lately that was delivered; 1 before the first."""
        record = self._records.get(life)
        return 1.0 if record is None else record.kept

    def keep(self, lives: Collection[Life]) -> None:
        """All others are over: forget them."""
        for life in self._records.keys() - lives:
            del self._records[life]
