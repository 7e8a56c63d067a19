"""One worker as the gateway knows it now: a value, replaced at each event."""

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from radixgate.v1.sync_pb2 import Load
from radixgate.v1.worker_pb2 import ModelCard

from gateway.fleet.discovery.roster import Place
from gateway.fleet.pressure import Pressure
from gateway.fleet.trust import IN_SYNC, SILENCE_LIMIT, Belief, SyncState, Trust, believe, doubted
from gateway.summary.events import Registration


class Life(NamedTuple):
    """One life of one worker process, of all pools."""

    model: str
    worker: str
    epoch: int


@dataclass
class FleetWorker:
    """Times are seconds of the fleet's monotonic clock.

    Args:
        registration: the life that is current.
        lease: seconds of silence after which the worker is lost.
        heard_at: when the last event of it came.
        deadline: when the lease ends; None while no news can arrive, because Redis is away.
        state: of its summary.
        load: its last report; None before the first.
        card: checked by this gateway; None until then, and the worker is no candidate before.
            Workers with equal cards share one, in which `worker` and `epoch` are blank.
        problem: why it cannot be used; empty when it can.
        doubt: what its record leaves of the belief in its summary; None when it has kept its word.
        place: its pod; None while nobody lists pods.

    Attributes:
        id: unique in its pool.
        closed: why it is sent nothing new, though it may be well; empty when it is.
    """

    registration: Registration
    lease: float
    heard_at: float
    deadline: float | None
    state: SyncState = SyncState.JOINING
    load: Load | None = None
    card: ModelCard | None = None
    problem: str = ""
    doubt: Belief | None = None
    place: Place | None = None
    id: str = field(init=False)
    closed: str = field(init=False)
    _live_until: float = field(init=False)

    def __post_init__(self) -> None:
        self.id = self.registration.worker
        self.closed = ""
        if self.draining:
            self.closed = "draining"
        elif self.place is not None and self.place.closed:
            self.closed = self.place.listing.value
        self._live_until = -math.inf
        if not self.problem and self.deadline is not None and self.state is SyncState.SYNCED:
            self._live_until = min(self.deadline, self.heard_at + SILENCE_LIMIT * self.lease)

    @property
    def epoch(self) -> int:
        """Which life of the worker this is."""
        return self.registration.epoch

    @cached_property
    def life(self) -> Life:
        """What fails, and is not the same worker any more when it is back."""
        return Life(self.registration.model, self.id, self.epoch)

    @property
    def address(self) -> str:
        """Where it serves gRPC, as host:port."""
        return self.registration.address

    @property
    def kv_tokens(self) -> int:
        """Tokens of prompt and output that its KV memory holds when nothing else runs."""
        return self.registration.num_blocks * self.registration.block_size

    @property
    def draining(self) -> bool:
        """Finishing what it has; takes nothing new."""
        return self.load is not None and self.load.draining

    @cached_property
    def pressure(self) -> Pressure:
        """What the last load report means for the next request; of an idle worker before that."""
        return Pressure.of(self.load or Load())

    def belief(self, now: float) -> Belief:
        """How far to trust it at `now`, and why."""
        reported = IN_SYNC if now < self._live_until else self._judged(now)
        return reported if self.doubt is None else doubted(reported, self.doubt)

    def in_sync(self, now: float) -> bool:
        """Whether its summary is what it reports at `now`, true or not."""
        return now < self._live_until or self._judged(now).trust is Trust.LIVE

    def _judged(self, now: float) -> Belief:
        remaining = None if self.deadline is None else self.deadline - now
        return believe(self.state, now - self.heard_at, self.lease, remaining, self.problem)
