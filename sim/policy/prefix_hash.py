"""The SGLang router's `prefix_hash`: consistent hashing of how a prompt begins, with bounded load.

Source: github.com/sgl-project/sglang, sgl-model-gateway (src/policies/prefix_hash.rs; 150 points
of a worker on the ring as in src/core/worker_registry.rs). Defaults: the first 256 tokens, load
factor 1.25.

The worker to whom the beginning belongs is taken while it has at most the load factor times the
mean of requests in flight; else the least loaded one.
"""

from typing import Final

import xxhash
from radixgate.prefix import TOKEN_BYTES

from sim.policy.base import Choice, Job, Site
from sim.policy.in_flight import InFlightPolicy
from sim.policy.ring import HashRing

PREFIX_TOKENS: Final = 256
LOAD_FACTOR: Final = 1.25


class PrefixHash(InFlightPolicy):
    """Args: `prefix_tokens` that are hashed; all of a shorter prompt."""

    def __init__(self, site: Site, prefix_tokens: int = PREFIX_TOKENS) -> None:
        super().__init__(site)
        self._ring = HashRing(self.in_flight)
        self._prefix_bytes = prefix_tokens * TOKEN_BYTES

    def choose(self, job: Job) -> Choice:
        """Who owns the beginning, or the least loaded one."""
        beginning = memoryview(job.prompt.packed)[: self._prefix_bytes]
        owner = self._ring.worker(xxhash.xxh3_64_intdigest(beginning))
        total = sum(self.in_flight.values())
        # NOTE: the mean counts the request that is on its way.
        bound = LOAD_FACTOR * (total + 1) / len(self.in_flight)
        if total == 0 or self.in_flight[owner] <= bound:
            return Choice(owner)
        return Choice(self.least_in_flight(self.in_flight))
