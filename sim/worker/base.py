"""What a simulated worker is to those around it, and the real cache that each has."""

from abc import ABC, abstractmethod
from collections import Counter
from typing import Final, Protocol

from radixgate.v1.sync_pb2 import Load

from sim.hardware.setup import WorkerSetup
from sim.loop import EventLoop
from sim.request import Request
from sim.sampling import State
from sim.worker.visit import Visit
from worker.engine.stats import EngineLoad
from worker.kv.events import KvEvents
from worker.kv.manager import KVManager
from worker.kv.memory import MemoryPolicy
from worker.kv.policy import POLICIES
from worker.report import load_message

GAP_UNIT: Final = 1e-5
"""Seconds to which gaps between tokens are rounded."""


class Listener(Protocol):
    """Hears of what a worker does with its visits, when it does it."""

    def started(self, visit: Visit, cached_tokens: int) -> None:
        """It begins with the prompt, of which it has so much."""

    def first_token(self, visit: Visit) -> None:
        """The prompt is computed."""

    def ended(self, visit: Visit) -> None:
        """The last token is there."""


class Worker(ABC):
    """Args:
        setup: what it is.
        stride: tokens from one boundary to the next.
        loop: its time.
        events: where the boundaries it stores and evicts are written.
        listener: see there.

    Attributes:
        events: as given.
        gaps: between two tokens of one sequence, in `GAP_UNIT`s, and how often.
        busy_seconds: in which it computed, until the end of the step under way.
        steps: that it has begun.
    """

    def __init__(
        self,
        setup: WorkerSetup,
        stride: int,
        loop: EventLoop,
        events: KvEvents,
        listener: Listener,
    ) -> None:
        self.events = events
        self.gaps: Counter[int] = Counter()
        self.busy_seconds = 0.0
        self.steps = 0
        self._setup = setup
        self._stride = stride
        self._loop = loop
        self._listener = listener
        policy = MemoryPolicy(eviction=POLICIES[setup.eviction])
        self._manager = KVManager(setup.num_blocks, setup.block_size, stride, events, policy)

    @abstractmethod
    def needs(self, request: Request) -> int:
        """Tokens of KV memory that it wants for `request` at most."""

    @abstractmethod
    def submit(self, visit: Visit) -> None:
        """Take a request. What it needs is no more than the KV memory."""

    @abstractmethod
    def engine_load(self) -> EngineLoad:
        """As it is now."""

    @property
    @abstractmethod
    def running(self) -> int:
        """Sequences that run."""

    @property
    @abstractmethod
    def waiting(self) -> int:
        """Sequences that wait."""

    def load(self) -> Load:
        """As it would report now."""
        return load_message(self.engine_load())

    def state(self) -> State:
        """As it is now."""
        stats = self._manager.stats()
        return State(self.running, self.waiting, stats.total_blocks - stats.free_blocks)

    @property
    def evicted_blocks(self) -> int:
        """Blocks evicted to make room, ever."""
        return self._manager.stats().evicted_blocks

    def check_integrity(self) -> None:
        """Raises AssertionError when blocks, tree and sequences disagree."""
        self._manager.check_integrity()
