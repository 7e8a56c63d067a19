"""A site with a clock and workers that a test plays: what was sent runs there until it ends."""

import heapq
from collections.abc import Callable
from itertools import count
from random import Random

from radixgate.v1.sync_pb2 import Load

from sim.policy.base import Choice, Job, Place, Policy
from tests.sim.policy.site import STRIDE, prompt_of

SLOTS = 8
BLOCKS = 1000
RATE = 1000.0
"""Tokens of prompt in a second."""


class TimedSite:
    """Attributes: `sent`, the choice for each job, in order; `refused`, why, by job."""

    def __init__(self, workers: int) -> None:
        self.places = [Place(f"w{index}", BLOCKS, 2, SLOTS) for index in range(workers)]
        self.stride = STRIDE
        self.rng = Random(0)
        self.now = 0.0
        self.sent: dict[Job, Choice] = {}
        self.refused: dict[Job, str] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def send(self, job: Job, choice: Choice) -> None:
        assert job not in self.sent
        assert job not in self.refused
        self.sent[job] = choice

    def refuse(self, job: Job, why: str) -> None:
        assert job not in self.sent
        assert job not in self.refused
        self.refused[job] = why

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        assert when >= self.now
        heapq.heappush(self._due, (when, next(self._numbers), callback))

    def pass_time(self, seconds: float) -> None:
        """Let happen what is due until then."""
        end = self.now + seconds
        while self._due and self._due[0][0] <= end:
            self.now, _, callback = heapq.heappop(self._due)
            callback()
        self.now = end

    @property
    def idle(self) -> bool:
        """Whether nothing is due, ever."""
        return not self._due


class Pool:
    """Plays the workers of a policy. Args: `make` it for the site; how many `workers`."""

    def __init__(self, make: Callable[[TimedSite], Policy], workers: int = 2) -> None:
        self.site = TimedSite(workers)
        self.policy = make(self.site)
        self.jobs: list[Job] = []
        for place in self.site.places:
            self.report(place.id)

    def report(self, worker: str, **load: float) -> None:
        """A load report of an idle worker, but for what `load` says."""
        idle = {
            "max_running": SLOTS,
            "free_blocks": BLOCKS,
            "total_blocks": BLOCKS,
            "prefill_tokens_per_second": RATE,
        }
        self.policy.loaded(worker, Load(**{**idle, **load}))

    def ask(self, text: str, extra: int = 1, *, priority: int = 0, tenant: str = "") -> Job:
        """A request for `text`, each letter a stride, and `extra` tokens."""
        prompt = prompt_of(text, extra)
        job = Job(len(self.jobs), prompt, "", tenant, priority, self.site.now)
        self.jobs.append(job)
        self.policy.arrived(job)
        return job

    def worker(self, job: Job) -> str:
        """Where `job` was sent; "" before."""
        choice = self.site.sent.get(job)
        return choice.worker if choice else ""

    def start(self, job: Job, cached_tokens: int = 0) -> None:
        """Its worker has computed its prompt."""
        self.policy.started(job, self.worker(job), cached_tokens)
        self.policy.first_token(job, self.worker(job))

    def end(self, job: Job) -> None:
        """Its answer is complete."""
        self.policy.ended(job, self.worker(job))
