"""What a request would cost on a worker, in milliseconds of expected delay; the lowest wins.

wait      = tokens ahead of it / prefill rate, and the time for a slot when all are taken
prefill   = its own tokens to compute / prefill rate
interfere = what its prefill adds to the sequences that run there
evict     = blocks that must go · measured regret per block

Rates are measured by the worker. Until it has measured one, a prior stands in.
"""

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import NamedTuple, Protocol, TypeVar

from radixgate.v1.sync_pb2 import Load

PRIOR_PREFILL_TOKENS_PER_SECOND = 1000.0
PRIOR_ITL_MS = 30.0
# A sequence that runs now is taken to need this many tokens more before it leaves its slot.
PRIOR_REMAINING_TOKENS = 128

TIE_MS = 1.0
TIE_RATIO = 0.05


class Prefill(NamedTuple):
    """Args: `tokens` of the prompt; how many of them are believed `cached`, so a fraction."""

    tokens: int
    cached: float

    @property
    def to_compute(self) -> float:
        """Tokens to compute: at least the last one, which gives the logits."""
        return max(1.0, self.tokens - self.cached)


class CostTerms(NamedTuple):
    """The four terms, in milliseconds."""

    wait_ms: float
    prefill_ms: float
    interfere_ms: float
    evict_ms: float

    @property
    def total_ms(self) -> float:
        """What candidates are compared by."""
        return sum(self)


def prior_rate(loads: Iterable[Load]) -> float:
    """Prefill tokens per second of a worker that has measured none: as its pool's others have."""
    measured = [load.prefill_tokens_per_second for load in loads if load.prefill_tokens_per_second]
    return fmean(measured) if measured else PRIOR_PREFILL_TOKENS_PER_SECOND


def cost(
    prefill: Prefill, load: Load, *, reserved_tokens: int, block_size: int, prior_rate: float
) -> CostTerms:
    """The cost of `prefill` on a worker.

    Args:
        prefill: what the request needs computed there.
        load: the worker's last report; fields it has not measured are 0.
        reserved_tokens: on their way to the worker, and not yet part of `load.backlog_tokens`.
        block_size: tokens in one of the worker's blocks.
        prior_rate: prefill tokens per second, if the worker has measured none.
    """
    rate = (load.prefill_tokens_per_second or prior_rate) / 1000
    prefill_ms = prefill.to_compute / rate
    occupied = load.running / load.max_running if load.max_running else 0.0
    missing_blocks = -(-prefill.to_compute // block_size) - load.free_blocks
    return CostTerms(
        wait_ms=(load.backlog_tokens + reserved_tokens) / rate + _slot_wait_ms(load),
        prefill_ms=prefill_ms,
        interfere_ms=prefill_ms * occupied,
        evict_ms=max(0.0, missing_blocks) * load.regret_ms_per_block,
    )


def _slot_wait_ms(load: Load) -> float:
    """Time until everyone waiting and then this request has a slot; 0 while one is free.

    With R sequences running that need L tokens each, one leaves every L · ITL / R.
    """
    if load.running + load.waiting < load.max_running or not load.running:
        return 0.0
    leaves_every_ms = PRIOR_REMAINING_TOKENS * (load.itl_ms or PRIOR_ITL_MS) / load.running
    return (load.running + load.waiting - load.max_running + 1) * leaves_every_ms


class Priced(Protocol):
    """Something that can be ranked."""

    @property
    def total_ms(self) -> float:
        """The cost."""

    @property
    def expected_tokens(self) -> int:
        """Breaks near ties: what is held or on its way there need not be computed twice."""

    @property
    def free_blocks(self) -> int:
        """Breaks near ties between those that hold equally much."""


PricedT = TypeVar("PricedT", bound=Priced)


def ranked(candidates: Sequence[PricedT], pick: Callable[[int], int]) -> list[PricedT]:
    """Best first.

    Candidates within max(1 ms, 5 %) of the lowest cost count as equal. Of them the one that is
    expected to hold the most goes first, since what it saves also serves whoever comes next; then
    the one with the most free blocks; then `pick(n)`, a random number below n, decides, so that
    gateways that see the same do not all run to the same worker.
    """
    by_cost = sorted(candidates, key=lambda candidate: candidate.total_ms)
    if not by_cost:
        return []
    lowest = by_cost[0].total_ms
    limit = lowest + max(TIE_MS, TIE_RATIO * lowest)
    tied = [candidate for candidate in by_cost if candidate.total_ms <= limit]
    best = max(map(_merit, tied))
    finalists = [candidate for candidate in tied if _merit(candidate) == best]
    winner = finalists[pick(len(finalists))]
    return [winner, *(candidate for candidate in by_cost if candidate is not winner)]


def _merit(candidate: Priced) -> tuple[int, int]:
    return candidate.expected_tokens, candidate.free_blocks
