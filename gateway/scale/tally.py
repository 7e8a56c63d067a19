"""What this gateway has counted of one pool's demand since it last said so. Pure.

A request pays for an addition and a place in a list. Its boundaries are hashed and sampled later,
when somebody takes the time.
"""

from collections import Counter
from collections.abc import Collection
from typing import Final

from radixgate.prefix import PrefixHash, pack_hashes
from radixgate.v1.demand_pb2 import Demand
from radixgate.v1.sync_pb2 import Load

from gateway.fleet.worker import FleetWorker
from gateway.route.outcome import Fate, Outcome
from gateway.route.router import Prompt

SAMPLES_PER_WORKER: Final = 256
"""A worker's whole KV memory is at least so many boundaries of the sample, if it has so many."""

SAMPLE_LIMIT: Final = 2_048
"""Boundaries in one entry, 16 KiB; with more the sample becomes sparser."""

NEAR: Final = 16
"""A boundary that is asked for again before so many others of the sample are is no news: every
cache has it."""

MOST: Final = 2**64 - 1
"""That an entry can say of anything: a worker's report may be no true number."""


class Tally:
    """Counts of one pool.

    Args: `gateway` names this life of this gateway.
    """

    def __init__(self, gateway: str) -> None:
        self._gateway = gateway
        self._number = 0
        self._requests = 0
        self._waited = 0.0
        self._tokens: Counter[Fate] = Counter()
        self._served: Counter[str] = Counter()
        self._unsampled: list[Prompt] = []
        self._level = 0
        self._stride = 0
        self._sample: list[PrefixHash] = []
        # Where in the sample each of its boundaries is, the last time.
        self._places: dict[PrefixHash, int] = {}

    def entered(self, prompt: Prompt, waited: float) -> None:
        """A request with `prompt` has its turn after so many seconds."""
        self._requests += 1
        self._waited += waited
        self._unsampled.append(prompt)

    def refused(self, waited: float) -> None:
        """A request was refused its turn after so many seconds."""
        self._requests += 1
        self._waited += waited

    def settled(self, outcome: Outcome) -> None:
        """What became of the prompt of a request is known for good."""
        self._tokens.update(outcome.fates())
        self._served[outcome.promise.life.worker] += outcome.cached

    def sample(self, limit: int) -> bool:
        """Look at `limit` prompts at most; whether more of them wait."""
        now, self._unsampled = self._unsampled[:limit], self._unsampled[limit:]
        below, sample, places = 1 << (64 - self._level), self._sample, self._places
        for prompt in now:
            self._stride = prompt.stride
            for name in prompt.boundaries[:]:
                if name < below and len(sample) - places.get(name, -NEAR) >= NEAR:
                    places[name] = len(sample)
                    sample.append(name)
        return bool(self._unsampled)

    def take(
        self, workers: Collection[FleetWorker], waiting: int, waiting_seconds: float
    ) -> Demand:
        """All that was counted, and how things are; it counts no longer.

        Args: `workers` that could take a request; how many are `waiting` here, and for how long.
        """
        while self.sample(SAMPLE_LIMIT):
            pass
        self._number += 1
        while len(self._sample) > SAMPLE_LIMIT:
            self._set_level(self._level + 1)
        demand = count(workers)
        counted = Demand(
            gateway=self._gateway,
            number=self._number,
            requests=self._requests,
            waited_seconds=self._waited,
            waiting=waiting,
            waiting_seconds=waiting_seconds,
            prompt_tokens=self._tokens.total(),
            cached_tokens=self._tokens[Fate.CACHED],
            evicted_tokens=self._tokens[Fate.EVICTED],
            served_tokens={worker: tokens for worker, tokens in self._served.items() if tokens},
            sample=pack_hashes(self._sample),
            level=self._level,
            stride=self._stride,
        )
        demand.MergeFrom(counted)
        self._requests, self._waited = 0, 0.0
        self._tokens.clear()
        self._served.clear()
        self._sample.clear()
        self._places.clear()
        if workers:
            self._set_level(_level(workers))
        return demand

    def _set_level(self, level: int) -> None:
        self._level = level
        below = 1 << (64 - level)
        self._sample = [name for name in self._sample if name < below]


def _level(workers: Collection[FleetWorker]) -> int:
    """As sparse as the KV memory of the largest allows; the same whatever their number."""
    most = max(
        (worker.kv_tokens // worker.registration.stride for worker in workers if worker.kv_tokens),
        default=0,
    )
    return max(0, (most // SAMPLES_PER_WORKER).bit_length() - 1)


def count(workers: Collection[FleetWorker]) -> Demand:
    """`workers` as an entry counts them; those that have not reported yet are left out."""
    known = [(worker, worker.load) for worker in workers if worker.load is not None]
    loads = [load for _, load in known]
    rates = [load.prefill_tokens_per_second for load in loads if load.prefill_tokens_per_second > 0]
    return Demand(
        workers=len(known),
        kv_tokens=min(MOST, sum(worker.kv_tokens for worker, _ in known)),
        blocks=sum(load.total_blocks for load in loads),
        used_blocks=sum(map(_used_blocks, loads)),
        slots=sum(load.max_running for load in loads),
        used_slots=sum(load.running + load.waiting for load in loads),
        # NOTE: who has computed nothing yet is taken to be as fast as the others.
        prefill_tokens_per_second=len(known) * sum(rates) / len(rates) if rates else 0.0,
        backlog_tokens=min(MOST, sum(load.backlog_tokens for load in loads)),
    )


def _used_blocks(load: Load) -> int:
    return max(0, load.total_blocks - load.free_blocks - load.cached_blocks)
