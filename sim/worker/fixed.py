"""A worker of which only the cache is real: it takes the same time for every request.

So routers are compared by what they find cached alone, as with workers that are stubs.
"""

from collections import deque
from functools import partial

from sim.hardware.setup import WorkerSetup
from sim.loop import EventLoop
from sim.request import Request
from sim.worker.base import Listener, Worker
from sim.worker.visit import Visit
from worker.engine.stats import EngineLoad
from worker.kv.events import KvEvents
from worker.kv.manager import SequenceKV
from worker.kv.tokens import Tokens


class FixedWorker(Worker):
    """Each request takes `seconds` once its prompt fits into the memory.

    A prompt takes no time, so there is no rate to report; the answer takes it all. Output is not
    generated: what is cached is the prompts, and they are all that needs memory.
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
        super().__init__(setup, stride, loop, events, listener)
        self._seconds = seconds
        self._queue: deque[tuple[Visit, Tokens]] = deque()
        self._serving = 0
        # When the time began that is not in `busy_seconds` yet.
        self._since = 0.0

    def needs(self, request: Request) -> int:
        """Its prompt, and room for output, without which a gateway sends it nowhere."""
        return request.prompt.tokens + 1

    def submit(self, visit: Visit) -> None:
        """As `Worker` says."""
        self._queue.append((visit, visit.tokens(self._stride)))
        self._admit()

    def engine_load(self) -> EngineLoad:
        """As `Worker` says."""
        backlog = sum(len(tokens) for _, tokens in self._queue)
        return EngineLoad(
            waiting=self.waiting,
            running=self.running,
            max_running=self._setup.max_running,
            backlog_tokens=backlog,
            backlog_work=backlog,
            attention_tokens=0,
            prefill_tokens_per_second=0.0,
            prefill_work_per_second=0.0,
            decode_tokens_per_second=0.0,
            itl_ms=0.0,
            kv=self._manager.stats(),
        )

    @property
    def running(self) -> int:
        """As `Worker` says."""
        return self._serving

    @property
    def waiting(self) -> int:
        """As `Worker` says."""
        return len(self._queue)

    def _admit(self) -> None:
        while self._queue:
            visit, tokens = self._queue[0]
            kv = self._manager.open(tokens, len(tokens))
            if kv is None:
                return
            self._queue.popleft()
            if not self._serving:
                self._since = self._loop.now
            self._serving += 1
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
        self._serving -= 1
        self._listener.ended(visit)
        self._admit()
