"""NVIDIA Dynamo's KV router: blocks to prefill plus blocks to decode, the fewest win.

Source: docs.nvidia.com/dynamo, "Router Design" and "Routing Concepts". Defaults: overlap score
weight 1, temperature 0 (the lowest cost wins), KV events on, prompt-side load counted, output
blocks not counted.

    cost = weight · (prefill tokens of the worker and this request) / block + decode blocks

What is to be prefilled comes from the workers' own events; how much of other requests is still to
be, and which blocks are in use, the router counts itself: from when it sends a request to the first
token, and to the end. Blocks that requests share are counted once.

Different here: prefixes match by boundaries, so what lies beyond the last one is never shared; of
equal costs one is drawn.
"""

from typing import Final, NamedTuple

from radixgate.prefix import PrefixHash

from gateway.route.index import PrefixIndex
from sim.policy.base import Choice, Job, Site
from sim.policy.reports import ReportsPolicy

OVERLAP_SCORE_WEIGHT: Final = 1.0


class _Active(NamedTuple):
    """A request that has been sent: what it uses of its worker, in tokens."""

    new_tokens: int
    tail_tokens: int
    boundaries: list[PrefixHash]


class Dynamo(ReportsPolicy):
    """See the module."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._block_sizes = {place.id: place.block_size for place in site.places}
        self._sent: dict[int, _Active] = {}
        self._prefill_tokens = dict.fromkeys(self.in_flight, 0)
        self._decode_tokens = dict.fromkeys(self.in_flight, 0)
        self._using = PrefixIndex()
        self._users: dict[str, dict[PrefixHash, int]] = {each: {} for each in self.in_flight}

    def choose(self, job: Job) -> Choice:
        """The lowest cost."""
        boundaries = job.prompt.boundaries[:]
        held, used = self.held.match(boundaries), self._using.match(boundaries)
        tokens, stride = job.prompt.tokens, self.site.stride
        costs = {}
        for worker, block_size in self._block_sizes.items():
            prefill = self._prefill_tokens[worker] + tokens - held.get(worker, 0) * stride
            decode = self._decode_tokens[worker] + tokens - used.get(worker, 0) * stride
            costs[worker] = (OVERLAP_SCORE_WEIGHT * prefill + decode) / block_size
        lowest = min(costs.values())
        chosen = self.site.rng.choice([each for each, cost in costs.items() if cost == lowest])
        matched_tokens = held.get(chosen, 0) * stride
        self._begin(job, chosen, tokens - matched_tokens, boundaries)
        return Choice(chosen, matched_tokens)

    def first_token(self, job: Job, worker: str) -> None:
        """Nothing of it is to be prefilled any more."""
        active = self._sent[job.number]
        self._prefill_tokens[worker] -= active.new_tokens
        self._sent[job.number] = active._replace(new_tokens=0)

    def ended(self, job: Job, worker: str) -> None:
        """Its blocks are no longer in use."""
        super().ended(job, worker)
        active = self._sent.pop(job.number)
        users = self._users[worker]
        free = []
        for name in active.boundaries:
            count = users.pop(name)
            if count > 1:
                users[name] = count - 1
            else:
                free.append(name)
        self._using.removed(worker, free)
        self._prefill_tokens[worker] -= active.new_tokens
        self._decode_tokens[worker] -= active.tail_tokens + len(free) * self.site.stride

    def _begin(self, job: Job, worker: str, new: int, boundaries: list[PrefixHash]) -> None:
        users = self._users[worker]
        first = []
        for name in boundaries:
            count = users.get(name, 0)
            users[name] = count + 1
            if not count:
                first.append(name)
        self._using.stored(worker, first)
        tail = job.prompt.tokens - len(boundaries) * self.site.stride
        self._prefill_tokens[worker] += new
        self._decode_tokens[worker] += tail + len(first) * self.site.stride
        self._sent[job.number] = _Active(new, tail, boundaries)
