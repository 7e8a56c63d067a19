"""Ray Serve's PrefixCacheAffinityRouter: a prefix tree of what was sent, over power of two choices.

Source: docs.ray.io/en/latest/serve/llm/prefix-aware-request-router.html and
github.com/ray-project/ray (python/ray/llm/_internal/serve/routing_policies/prefix_aware). Defaults:
match rate threshold 0.1, no threshold of imbalance, so that all load counts as balanced, and
nothing forgotten.

While load is balanced, a worker that was sent the longest known prefix is taken if that is at least
the match rate threshold of the prompt; else of those that were sent the least text in all the one
with the shortest queue. When queues differ by more than the threshold of imbalance, the shorter
queue of two random workers decides.

Different here: prompts match by boundaries, not by characters; of several that were sent the
longest prefix one is drawn, for the reason given in `sglang.py`.
"""

import math
from typing import Final

from sim.policy.base import Choice, Job, Site
from sim.policy.history import PromptHistory
from sim.policy.in_flight import InFlightPolicy

MATCH_RATE_THRESHOLD: Final = 0.1
IMBALANCED_THRESHOLD: Final = math.inf


class RayPrefixAffinity(InFlightPolicy):
    """Args: `imbalanced_threshold`, requests by which queues may differ."""

    def __init__(self, site: Site, imbalanced_threshold: float = IMBALANCED_THRESHOLD) -> None:
        super().__init__(site)
        self._imbalanced_threshold = imbalanced_threshold
        self._history = PromptHistory(self.in_flight)

    def choose(self, job: Job) -> Choice:
        """By prefix, by size, or by queue."""
        boundaries = job.prompt.boundaries[:]
        choice = self._chosen(job, *self._history.match(boundaries))
        self._history.sent(choice.worker, boundaries)
        return choice

    def _chosen(self, job: Job, matched: int, holders: tuple[str, ...]) -> Choice:
        matched_tokens = matched * self.site.stride
        queues = self.in_flight.values()
        if max(queues) - min(queues) > self._imbalanced_threshold:
            two = self.site.rng.sample(list(self.in_flight), min(2, len(self.in_flight)))
            worker = self.least_in_flight(two)
        elif holders and matched_tokens >= MATCH_RATE_THRESHOLD * job.prompt.tokens:
            worker = self.site.rng.choice(holders)
        else:
            smallest = min(map(self._history.size, self.in_flight))
            worker = self.least_in_flight(
                [each for each in self.in_flight if self._history.size(each) == smallest]
            )
        return Choice(worker, matched_tokens if worker in holders else 0)
