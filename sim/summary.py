"""What a run comes to: a few numbers to compare policies by, from its raw measurements. Pure."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.load import rate_of_busiest_half
from sim.results import Floats, Ints, Run


@dataclass(frozen=True, slots=True)
class Slo:
    """What a request, and what a pool, is to keep.

    Args:
        ttft_seconds: from arrival to the first token, at most.
        itl_seconds: mean between two tokens of its answer, at most.
        share: of all requests that keep both, in a pool that meets the objective.

    Raises:
        ValueError: one is not positive, or the share is above 1.
    """

    ttft_seconds: float = 2.0
    itl_seconds: float = 0.05
    share: float = 0.9

    def __post_init__(self) -> None:
        if not (self.ttft_seconds > 0 and self.itl_seconds > 0):
            raise ValueError(f"an SLO needs times above 0, and not {self}")
        if not 0 < self.share <= 1:
            raise ValueError(f"an SLO's share is above 0 and at most 1, and not {self.share}")


@dataclass(frozen=True, slots=True)
class Spread:
    """Of times in seconds; all NaN when there are none.

    Attributes:
        mean: of those that are finite.
        p50, p90, p99: the least value that so many of 100 do not exceed. Infinite ones count.
    """

    mean: float
    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, values: Floats, counts: Ints) -> "Spread":
        """Args: `values` [N], in any order, without NaN; `counts` [N], how often each occurred."""
        order = np.argsort(values, kind="stable")
        values = values[order]
        below = np.cumsum(counts[order])
        total = int(below[-1]) if len(below) else 0
        if not total:
            return cls(np.nan, np.nan, np.nan, np.nan)
        ranks = [-(-percent * total // 100) for percent in (50, 90, 99)]
        p50, p90, p99 = map(float, values[np.searchsorted(below, ranks)])
        finite = np.isfinite(values)
        weights = counts[order][finite]
        mean = float(np.average(values[finite], weights=weights)) if weights.any() else np.nan
        return cls(mean, p50, p90, p99)


@dataclass(frozen=True, slots=True)
class Summary:
    """One run in numbers. A quotient of nothing and nothing is NaN.

    Attributes:
        policy, trace, settings, gpus, refusals, wall_seconds: of the run.
        workers: how many.
        requests: of the trace, served or refused.
        refused: of these.
        busiest_rate: requests a second that came in the shortest time in which half of them did.
        seconds: virtual, from the first arrival to the last event of a request.
        prompt_tokens, output_tokens: of all requests; of all answers.
        hit_rate: share of the prompt tokens of all requests that was cached.
        stale, elsewhere, evicted, new: shares of the same that were missed, by kind.
        unserved: share of the same that belongs to refused requests. All six sum to 1.
        ideal_hit_rate: share of the same that one endless cache would have had, with no request
            refused. No `hit_rate` is above it.
        ttft: from arrival in the gateway to the first token; infinite when it was refused, so that
            nobody gains by refusing. The mean is of the served alone.
        itl: between two tokens of one answer, each pair counted once.
        good_share: of all requests, those that keep the SLO: served, `ttft_seconds`, and the mean
            time between their tokens within `itl_seconds`, if they have two.
        goodput: such requests a second of `seconds`.
        request_imbalance: requests of the worker with most, over the mean of all workers.
        busy_imbalance: the same, of the seconds in which they computed.
        utilisation: share of `seconds` in which workers computed, mean of all.
        evicted_blocks: of KV, on all workers.
        preemptions: of requests, each time counted.
    """

    policy: str
    trace: str
    settings: dict[str, str]
    gpus: int
    refusals: dict[str, int]
    wall_seconds: float
    workers: int
    requests: int
    refused: int
    busiest_rate: float
    seconds: float
    prompt_tokens: int
    output_tokens: int
    hit_rate: float
    stale: float
    elsewhere: float
    evicted: float
    new: float
    unserved: float
    ideal_hit_rate: float
    ttft: Spread
    itl: Spread
    good_share: float
    goodput: float
    request_imbalance: float
    busy_imbalance: float
    utilisation: float
    evicted_blocks: int
    preemptions: int


def summarize(run: Run, slo: Slo) -> Summary:
    """The numbers of `run`, measured against `slo`."""
    requests, workers = run.requests, run.workers
    count = len(requests.arrived)
    served = requests.worker >= 0
    asked = int(requests.prompt_tokens.sum())
    seconds = _seconds(run)
    good = int(_keeps(run, slo).sum())

    def share(tokens: Ints) -> float:
        return _ratio(int(tokens[served].sum()), asked)

    return Summary(
        policy=run.policy,
        trace=run.trace,
        settings=run.settings,
        gpus=run.gpus,
        refusals=run.refusals,
        wall_seconds=run.wall_seconds,
        workers=len(workers.requests),
        requests=count,
        refused=count - int(served.sum()),
        busiest_rate=rate_of_busiest_half(np.sort(requests.arrived)),
        seconds=seconds,
        prompt_tokens=asked,
        output_tokens=int(requests.output_tokens[served].sum()),
        hit_rate=share(requests.cached),
        stale=share(requests.stale),
        elsewhere=share(requests.elsewhere),
        evicted=share(requests.evicted),
        new=share(requests.new),
        unserved=_ratio(int(requests.prompt_tokens[~served].sum()), asked),
        ideal_hit_rate=_ratio(int(run.ideal_cached.sum()), asked),
        ttft=Spread.of(ttfts(run), np.ones(count, np.int64)),
        itl=Spread.of(run.gaps, run.gap_counts),
        good_share=_ratio(good, count),
        goodput=_ratio(good, seconds),
        request_imbalance=_imbalance(workers.requests),
        busy_imbalance=_imbalance(workers.busy_seconds),
        utilisation=_ratio(float(workers.busy_seconds.sum()), seconds * len(workers.busy_seconds)),
        evicted_blocks=int(workers.evicted_blocks.sum()),
        preemptions=int(requests.preemptions.sum()),
    )


def ttfts(run: Run) -> Floats:
    """[N] seconds from each arrival to the first token; infinite for what was refused."""
    requests = run.requests
    return np.where(requests.worker >= 0, requests.first_token - requests.arrived, np.inf)


def _seconds(run: Run) -> float:
    """From the first arrival to the last event of a request; 0 without requests."""
    arrived, ended = run.requests.arrived, run.requests.ended
    if not len(arrived):
        return 0.0
    return float(np.fmax(arrived, ended).max() - arrived.min())


def _keeps(run: Run, slo: Slo) -> NDArray[np.bool_]:
    """[N] whether each request keeps the objective."""
    requests = run.requests
    gaps = np.maximum(requests.output_tokens - 1, 1)
    in_time = ttfts(run) <= slo.ttft_seconds
    fast = (requests.ended - requests.first_token) / gaps <= slo.itl_seconds
    return in_time & (fast | (requests.output_tokens < 2))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else np.nan


def _imbalance(loads: Floats | Ints) -> float:
    return _ratio(float(loads.max()), float(loads.mean())) if len(loads) else np.nan
