"""The SGLang router's `cache_aware`: an approximate tree of what was sent, with a guard of load.

Source: github.com/sgl-project/sglang, sgl-model-gateway (src/policies/cache_aware.rs, tree.rs) and
the defaults of its launcher (router_args.py): cache threshold 0.3, balance thresholds 64 and 1.5,
trees of 2^26 characters a worker, looked over every 120 s.

When the workers' loads differ by more than both thresholds, the least loaded one is taken. Else a
worker that was sent the longest known prefix is, if that is more than the cache threshold of the
prompt; and else the least loaded one. Older versions took the one with the smallest tree then.

Different here: prompts match by boundaries, not by characters; a character is a quarter of a token;
what is forgotten are the boundaries sent longest ago, not whole edges of a tree. Of several that
were sent the longest prefix one is drawn: there it is who was sent the text that also goes on with
the same few characters, which says as little.
"""

from typing import Final

from sim.policy.base import Choice, Job, Site
from sim.policy.history import PromptHistory
from sim.policy.in_flight import InFlightPolicy

CACHE_THRESHOLD: Final = 0.3
BALANCE_ABS_THRESHOLD: Final = 64
BALANCE_REL_THRESHOLD: Final = 1.5
EVICTION_SECONDS: Final = 120.0
TREE_TOKENS: Final = 2**26 // 4


class SglangCacheAware(InFlightPolicy):
    """See the module."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._history = PromptHistory(self.in_flight)
        self._next_eviction = EVICTION_SECONDS

    def choose(self, job: Job) -> Choice:
        """Longest prefix, or least load."""
        self._evict()
        boundaries = job.prompt.boundaries[:]
        choice = self._chosen(job, *self._history.match(boundaries))
        self._history.sent(choice.worker, boundaries)
        return choice

    def _chosen(self, job: Job, matched: int, holders: tuple[str, ...]) -> Choice:
        matched_tokens = matched * self.site.stride
        if not self._imbalanced() and matched_tokens > CACHE_THRESHOLD * job.prompt.tokens:
            return Choice(self.site.rng.choice(holders), matched_tokens)
        worker = self.least_in_flight(self.in_flight)
        return Choice(worker, matched_tokens if worker in holders else 0)

    def _imbalanced(self) -> bool:
        loads = self.in_flight.values()
        most, fewest = max(loads), min(loads)
        return most - fewest > BALANCE_ABS_THRESHOLD and most > BALANCE_REL_THRESHOLD * fewest

    def _evict(self) -> None:
        if self.site.now < self._next_eviction:
            return
        self._next_eviction = self.site.now + EVICTION_SECONDS
        for worker in self.in_flight:
            self._history.forget(worker, TREE_TOKENS // self.site.stride)
