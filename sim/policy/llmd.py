"""llm-d's scorer mix, on the Gateway API Inference Extension: queue 2, KV utilisation 2, prefix 3.

Source: github.com/kubernetes-sigs/gateway-api-inference-extension (pkg/epp/scheduling/framework/
plugins: scorer/queue.go, scorer/kvcache_utilization.go, multi/prefix, picker/max_score_picker.go),
and llm-d's guide "optimized-baseline" for the weights. Scores are in [0, 1], the highest weighted
sum wins, and of equal ones one is drawn.

    queue    how much shorter than the longest its waiting queue is, between longest and shortest
    KV       share of its KV memory that no running request uses
    prefix   share of the prompt's blocks that it was sent, by the scorer's own LRU index

Defaults: the first 131,072 tokens match; the index holds as many blocks of each worker as that has
memory for (auto-tuned; 31,250 blocks where a worker does not tell).

Metrics are scraped every 50 ms.

Different here: blocks of the index are the strides of prompts. The guide's fourth scorer, which
spreads requests that hit nothing, is left out.
"""

from typing import Final

from radixgate.v1.sync_pb2 import Load

from sim.policy.base import Choice, Job, Policy, Site
from sim.policy.history import PromptHistory

QUEUE_WEIGHT: Final = 2.0
KV_WEIGHT: Final = 2.0
PREFIX_WEIGHT: Final = 3.0
MATCHED_TOKENS: Final = 131_072


class LlmdScorers(Policy):
    """See the module."""

    load_seconds = 0.05

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._history = PromptHistory(place.id for place in site.places)
        self._limits = {
            place.id: place.num_blocks * place.block_size // site.stride for place in site.places
        }
        self._waiting = dict.fromkeys(self._limits, 0)
        self._unused = dict.fromkeys(self._limits, 1.0)

    def choose(self, job: Job) -> Choice:
        """The highest score."""
        boundaries = job.prompt.boundaries[: MATCHED_TOKENS // self.site.stride]
        matched = self._history.matches(boundaries)
        longest, shortest = max(self._waiting.values()), min(self._waiting.values())
        scores = {}
        for worker, waiting in self._waiting.items():
            queue = (longest - waiting) / (longest - shortest) if longest > shortest else 1.0
            prefix = matched.get(worker, 0) / len(boundaries) if boundaries else 0.0
            scores[worker] = (
                QUEUE_WEIGHT * queue + KV_WEIGHT * self._unused[worker] + PREFIX_WEIGHT * prefix
            )
        highest = max(scores.values())
        chosen = self.site.rng.choice([each for each, score in scores.items() if score == highest])
        self._history.sent(chosen, boundaries)
        self._history.forget(chosen, self._limits[chosen])
        return Choice(chosen, matched.get(chosen, 0) * self.site.stride)

    def loaded(self, worker: str, load: Load) -> None:
        """What the queue and the KV scorer go by from now on."""
        self._waiting[worker] = load.waiting
        self._unused[worker] = (load.free_blocks + load.cached_blocks) / load.total_blocks
