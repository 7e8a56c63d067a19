"""What a request would cost on a worker, in milliseconds of expected delay.

wait      = work ahead of it / prefill rate, the time for a slot when all are taken, and, where
            sequences run, the step under way
prefill   = its own work / prefill rate
interfere = what its prefill adds to the sequences that run there, and what these and its answer add
            to each other's steps
evict     = blocks that must go · regret per block, the mean of all workers

Work is tokens weighed by their context, see `radixgate.work`. Rates are measured by the worker, but
what is near the pool's mean counts as that: it says less of the worker than of what else its
machine did meanwhile. Until a worker has measured one, a prior stands in. A step takes the time
between tokens, the mean of all workers: a single one's says too much of what just happened to be
computed there. Regret is a mean too: by its own, a worker that evicts what comes back would send
that to others, which then evict what comes back.

The lowest wins, but what is computed weighs more than it takes, since it keeps the worker from
others, the more so the busier the pool is. What they lose is work, not time: equally much at a slow
worker and at a fast one. So it is counted at the mean rate of all.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean
from typing import Final, Protocol, TypeVar

from radixgate.work import prefill_work

from gateway.fleet.pressure import Pressure
from gateway.route.reservations import Unreported

PRIOR_WORK_PER_MS = 1.0

ALIKE: Final = 4 / 3
"""Rates within this factor of their pool's mean are taken to be that."""

MOST_ODDS: Final = 8
"""Where all workers have prompts to compute, so many are taken to be busy for an idle one."""

SEQUENCES: Final = 16
"""So many sequences that are delayed count as much as the request itself."""

STEPS: Final = 0.3
"""By so many steps, all their tokens together, an answer and a sequence beside it are delayed."""


@dataclass(slots=True)
class CostTerms:
    """The four terms, in milliseconds."""

    wait_ms: float
    prefill_ms: float
    interfere_ms: float
    evict_ms: float

    @property
    def total_ms(self) -> float:
        """The expected delay of the request."""
        return self.wait_ms + self.prefill_ms + self.interfere_ms + self.evict_ms


@dataclass(frozen=True, slots=True)
class CostConfig:
    """How the terms of candidates are compared.

    Args:
        wait, interfere, evict: factors of these terms; 0 leaves one out.
        compute_weight: what a prefill is taken to delay others by, as a share of its own time at
            the pool's mean rate.
        crowd_weight: the same, beyond that, for each worker that has prompts to compute to one that
            has none.
        tie_ms: costs that differ by no more are equal.
        tie_ratio: costs are near the lowest within this share of it, or within `tie_ms` if that is
            more.
    """

    wait: float = 1.0
    interfere: float = 1.0
    evict: float = 1.0
    compute_weight: float = 3.0
    crowd_weight: float = 1.0
    tie_ms: float = 1.0
    tie_ratio: float = 0.05

    def weighed_ms(self, terms: CostTerms, delayed: float) -> float:
        """What candidates are compared by.

        Args:
            terms: of one of them.
            delayed: what its prefill delays others by, as a share of the time that it takes there.
        """
        return (
            self.wait * terms.wait_ms
            + (1 + delayed) * terms.prefill_ms
            + self.interfere * terms.interfere_ms
            + self.evict * terms.evict_ms
        )

    def delays(self, crowd: float) -> float:
        """What a prefill delays others by, as a share of its time at the pool's mean rate.

        Args: `crowd`, the share of the candidates that have prompts to compute.
        """
        odds = crowd / (1 - crowd + 1 / MOST_ODDS)
        return self.compute_weight + self.crowd_weight * odds

    def tie_limit_ms(self, lowest_ms: float) -> float:
        """The highest cost that is near the lowest one."""
        return lowest_ms + max(self.tie_ms, self.tie_ratio * lowest_ms)


COST: Final = CostConfig()
"""What gateways use."""


def prior_rate(pressures: Iterable[Pressure]) -> float:
    """Prefill work per ms of a worker that has measured none: as its pool's others have."""
    measured = [pressure.work_per_ms for pressure in pressures if pressure.work_per_ms]
    return fmean(measured) if measured else PRIOR_WORK_PER_MS


@dataclass(slots=True)
class Pool:
    """What the workers of a pool have in common.

    Args:
        work_per_ms: the `prior_rate`.
        step_ms: mean time between two tokens of an answer; 0 until measured.
        regret_ms: what evicting a block costs, on average of all workers.
    """

    work_per_ms: float
    step_ms: float
    regret_ms: float

    @classmethod
    def of(cls, pressures: Collection[Pressure]) -> "Pool":
        """Of the workers with these."""
        steps = [pressure.itl_ms for pressure in pressures if pressure.itl_ms]
        regrets = [pressure.regret_ms_per_block for pressure in pressures]
        return cls(
            work_per_ms=prior_rate(pressures),
            step_ms=fmean(steps) if steps else 0.0,
            regret_ms=fmean(regrets) if regrets else 0.0,
        )

    def rate(self, pressure: Pressure) -> float:
        """Prefill work per ms of a worker; the mean, until one is measured that is not `ALIKE`."""
        measured = pressure.work_per_ms
        alike = self.work_per_ms / ALIKE <= measured <= self.work_per_ms * ALIKE
        return measured if measured and not alike else self.work_per_ms


def cost(
    tokens: int,
    cached: float,
    pressure: Pressure,
    unreported: Unreported,
    *,
    block_size: int,
    pool: Pool,
    rate: float,
) -> CostTerms:
    """The cost of a request on a worker.

    Args:
        tokens: of its prompt.
        cached: of them, as far as that is believed, so a fraction too. The last one is computed in
            any case, since it gives the logits.
        pressure: on the worker, by its last report.
        unreported: what this gateway knows beyond that.
        block_size: tokens in one of the worker's blocks.
        pool: that the worker is of.
        rate: prefill work per ms of the worker, by its pool.
    """
    start = cached if cached < tokens - 1 else tokens - 1
    prefill_ms = prefill_work(start, tokens, pressure.attention_tokens) / rate
    wait_ms = unreported.backlog(pressure.backlog_work) / rate + pressure.slot_wait_ms
    interfere_ms = 0.0
    running = pressure.running + unreported.requests
    if running > 0:
        wait_ms += pool.step_ms
        interfere_ms = running * (prefill_ms / SEQUENCES + STEPS * pool.step_ms)
    missing_blocks = -(-(tokens - start) // block_size) - pressure.free_blocks
    evict_ms = missing_blocks * pool.regret_ms if missing_blocks > 0 else 0.0
    return CostTerms(wait_ms, prefill_ms, interfere_ms, evict_ms)


class Priced(Protocol):
    """Something that can be ranked."""

    @property
    def weighed_ms(self) -> float:
        """The cost."""

    @property
    def believed_tokens(self) -> float:
        """Decides between near costs: what is held or on its way need not be computed twice."""

    @property
    def places(self) -> int:
        """Decides between equal costs: for more requests."""

    @property
    def free_blocks(self) -> int:
        """Decides between those that have equally many places."""


PricedT = TypeVar("PricedT", bound=Priced)


def ranked(
    candidates: Sequence[PricedT], affinity: Callable[[PricedT], int], config: CostConfig = COST
) -> list[PricedT]:
    """Best first.

    Of the candidates whose cost is near the lowest, by `config`, those that are believed to hold
    the most go first, since what they save also serves whoever comes next. Of these the lowest cost
    wins; where costs are equal, the one with the most places, then with the most free blocks, then
    with the highest `affinity`. That is a hash and not chance, so that gateways that know the same
    choose the same for one prompt, and spread different prompts.
    """
    if not candidates:
        return []
    by_cost = sorted(candidates, key=attrgetter("weighed_ms"))
    limit = config.tie_limit_ms(by_cost[0].weighed_ms)
    near = [each for each in by_cost if each.weighed_ms <= limit]
    most = max([each.believed_tokens for each in near])
    holders = [each for each in near if each.believed_tokens == most]
    equal_limit = holders[0].weighed_ms + config.tie_ms
    equals = [each for each in holders if each.weighed_ms <= equal_limit]
    best = max([(each.places, each.free_blocks) for each in equals])
    finalists = [each for each in equals if (each.places, each.free_blocks) == best]
    winner = finalists[0] if len(finalists) == 1 else max(finalists, key=affinity)
    return [winner, *[each for each in by_cost if each is not winner]]
