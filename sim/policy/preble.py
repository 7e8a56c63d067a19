"""Preble's E2: exploit what is cached, or explore by load.

Source: Srivatsa et al., "Preble: Efficient Distributed Prompt Scheduling for LLM Serving",
arXiv:2407.00023, and github.com/WukLab/preble (multi_node/global_scheduler_with_time.py) for the
window, 3 minutes, and the ratio of loads, 15, above which work is moved, after 50 requests.

A request of which more is cached somewhere than is not goes where most of it is; of several such
workers, to the one with the least load. Any other goes where load and its own prefill together are
least. Load is the time for what was sent within the window: tokens to prefill, at the mean of the
workers' rates, and the mean time of an answer after its first token. When the chosen worker's load
is more than the ratio times the least, the least loaded one takes the request.

What is cached is what was sent, less what the worker says that it evicted.

Different here: the cost of what must be evicted is left out, as in the published code unless it is
asked for; so are the copies of prefixes whose queueing time has doubled. The published code does
not call what moves work; here that is one request at a time, not a subtree. Rates and times of
answers are measured, not of a profile.
"""

from collections import deque
from statistics import fmean
from typing import Final, NamedTuple

from radixgate.v1.sync_pb2 import Load

from gateway.route.cost import PRIOR_WORK_PER_MS
from sim.policy.base import Choice, Job, Policy, Site
from sim.policy.history import PromptHistory
from worker.kv.events import Change

WINDOW_SECONDS: Final = 180.0
HIGH_LOAD_RATIO: Final = 15
REBALANCED_FROM: Final = 50


class _Sent(NamedTuple):
    at: float
    worker: str
    new_tokens: int


class Preble(Policy):
    """See the module."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        workers = [place.id for place in site.places]
        self._history = PromptHistory(workers)
        self._rates: dict[str, float] = {}
        self._rate = 1000 * PRIOR_WORK_PER_MS
        self._window: deque[_Sent] = deque()
        self._window_tokens = dict.fromkeys(workers, 0)
        self._window_requests = dict.fromkeys(workers, 0)
        self._requests = 0
        self._first_tokens: dict[int, float] = {}
        self._answers = 0
        self._answer_seconds = 0.0

    def choose(self, job: Job) -> Choice:
        """Exploit or explore."""
        self._slide()
        boundaries = job.prompt.boundaries[:]
        stride, tokens = self.site.stride, job.prompt.tokens
        matched = {
            worker: count * stride for worker, count in self._history.matches(boundaries).items()
        }
        loads = {worker: self._load(worker) for worker in self._window_tokens}
        most = max(matched.values(), default=0)
        if most > tokens - most:
            holders = [worker for worker, held in matched.items() if held == most]
            chosen = min(holders, key=loads.__getitem__)
        else:
            chosen = min(
                loads,
                key=lambda each: loads[each] + (tokens - matched.get(each, 0)) / self._rate,
            )
        least = min(loads, key=loads.__getitem__)
        if self._requests >= REBALANCED_FROM and loads[chosen] > HIGH_LOAD_RATIO * loads[least]:
            chosen = least
        expected = matched.get(chosen, 0)
        self._history.sent(chosen, boundaries)
        self._count(chosen, tokens - expected)
        return Choice(chosen, expected)

    def first_token(self, job: Job, worker: str) -> None:  # noqa: ARG002
        """From here on it decodes."""
        self._first_tokens[job.number] = self.site.now

    def ended(self, job: Job, worker: str) -> None:  # noqa: ARG002
        """So long an answer takes."""
        self._answers += 1
        self._answer_seconds += self.site.now - self._first_tokens.pop(job.number)

    def changed(self, worker: str, change: Change) -> None:
        """What was evicted is not cached any more."""
        for hashes in change.removed.values():
            self._history.removed(worker, hashes)

    def loaded(self, worker: str, load: Load) -> None:
        """The prefill rate, once it is measured."""
        if load.prefill_tokens_per_second:
            self._rates[worker] = load.prefill_tokens_per_second
            self._rate = fmean(self._rates.values())

    def _load(self, worker: str) -> float:
        answer_seconds = self._answer_seconds / self._answers if self._answers else 0.0
        prefill_seconds = self._window_tokens[worker] / self._rate
        return prefill_seconds + self._window_requests[worker] * answer_seconds

    def _count(self, worker: str, new_tokens: int) -> None:
        self._window.append(_Sent(self.site.now, worker, new_tokens))
        self._window_tokens[worker] += new_tokens
        self._window_requests[worker] += 1
        self._requests += 1

    def _slide(self) -> None:
        while self._window and self._window[0].at < self.site.now - WINDOW_SECONDS:
            _, worker, new_tokens = self._window.popleft()
            self._window_tokens[worker] -= new_tokens
            self._window_requests[worker] -= 1
