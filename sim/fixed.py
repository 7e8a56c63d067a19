"""A worker of which only the cache is real: it takes the same time for every request.

So routers are compared by what they find cached alone, as with workers that are stubs.
"""

from collections import Counter, deque
from functools import partial

from radixgate.v1.sync_pb2 import Load

from sim.hardware.setup import WorkerSetup
from sim.loop import EventLoop
from sim.visit import Visit
from sim.worker import Listener
from worker.engine.stats import EngineLoad
from worker.kv.events import KvEvents
from worker.kv.manager import KVManager, SequenceKV
from worker.kv.memory import MemoryPolicy
from worker.kv.policy import POLICIES
from worker.kv.tokens import Tokens
from worker.report import load_message


class FixedWorker:
    """As `SimWorker`, but each request takes `seconds` once its prompt fits into the memory.

    A prompt takes no time, so there is no rate to report; the answer takes it all. Output is not
    generated: what is cached is the prompts.
    """

    def __init__(
        self,
        setup: WorkerSetup,
        stride: int,
        loop: EventLoop,
        events: KvEvents,
        listener: Listener,
        *,
        seconds: float,
    ) -> None:
        self.events = events
        self.gaps: Counter[int] = Counter()
        self.busy_seconds = 0.0
        self.steps = 0
        self._setup = setup
        self._stride = stride
        self._loop = loop
        self._listener = listener
        self._seconds = seconds
        policy = MemoryPolicy(eviction=POLICIES[setup.eviction])
        self._manager = KVManager(setup.num_blocks, setup.block_size, stride, events, policy)
        self._waiting: deque[tuple[Visit, Tokens]] = deque()
        self._running = 0
        # When the time began that is not in `busy_seconds` yet.
        self._since = 0.0

    def submit(self, visit: Visit) -> None:
        """Take a request, whose prompt fits the KV memory."""
        self._waiting.append((visit, visit.tokens(self._stride)))
        self._admit()

    def load(self) -> Load:
        """As it would report now."""
        return load_message(
            EngineLoad(
                waiting=len(self._waiting),
                running=self._running,
                max_running=self._setup.max_running,
                backlog_tokens=sum(len(tokens) for _, tokens in self._waiting),
                backlog_work=sum(len(tokens) for _, tokens in self._waiting),
                attention_tokens=0,
                prefill_tokens_per_second=0.0,
                prefill_work_per_second=0.0,
                decode_tokens_per_second=0.0,
                itl_ms=0.0,
                kv=self._manager.stats(),
            )
        )

    def state(self) -> tuple[int, int, int]:
        """Requests that run, and that wait; blocks that are not free."""
        stats = self._manager.stats()
        return self._running, len(self._waiting), stats.total_blocks - stats.free_blocks

    @property
    def evicted_blocks(self) -> int:
        """Blocks evicted to make room, ever."""
        return self._manager.stats().evicted_blocks

    def check_integrity(self) -> None:
        """Raises AssertionError when blocks and tree disagree."""
        self._manager.check_integrity()

    def _admit(self) -> None:
        while self._waiting:
            visit, tokens = self._waiting[0]
            kv = self._manager.open(tokens, len(tokens))
            if kv is None:
                return
            self._waiting.popleft()
            if not self._running:
                self._since = self._loop.now
            self._running += 1
            self.steps += 1
            self._listener.started(visit, kv.cached)
            self._listener.first_token(visit)
            ends = self._loop.now + self._seconds
            self._loop.call_at(ends, partial(self._end, visit, tokens, kv))

    def _end(self, visit: Visit, tokens: Tokens, kv: SequenceKV) -> None:
        self._manager.commit(kv, tokens, len(tokens))
        self._manager.close(kv)
        self.busy_seconds += self._loop.now - self._since
        self._since = self._loop.now
        self._running -= 1
        self._listener.ended(visit)
        self._admit()
