"""What a pool's demand says about its size. Pure; no signal is ever NaN, infinite or below 0."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from radixgate.v1.demand_pb2 import Demand

from gateway.scale.window import Window

TOLERATED: Final = 0.05
"""Of all prompt tokens, so many may be computed again because they were evicted."""

FILL: Final = 0.8
"""Of the KV memory, so much is for prompts that are asked for again: the rest is for output, for
copies of what is hot, and for what is asked for once."""

LARGEST: Final = 1e6
"""No signal is above it."""


@dataclass(frozen=True, slots=True)
class Signals:
    """Of one pool, now. Tokens, requests and waits are those of all gateways.

    Args:
        size: workers there are, also those that take nothing yet.
        workers: those that could take a request.
        kv_tokens: that the KV memory of these holds.
        requests: lately, as long as counts for traffic.
        waiting: requests that wait in gateways.
        running: requests at workers.
        miss_rate: share of prompt tokens that were not cached.
        evicted_share: share of prompt tokens that were not cached because they had been evicted.
        working_set_tokens: the cache that would lose only what is tolerated, if it were one.
        fewest: the fewest workers that there were while these were counted.
        queue_seconds: how long a request waits to be computed.
        fewest_recently: as `fewest`, for the waits.
        kv_utilization: share of the KV blocks that sequences or pins hold: nothing can evict them.
        slot_utilization: sequences that run or wait, over those that may run.
        prefill_utilization: prompt tokens to compute in a second, over those that can be.
        counted: nothing is missing of these requests.
        settled: nothing has been missing for so long that the pool may shrink.
    """

    size: int
    workers: int
    kv_tokens: int
    requests: int
    waiting: int
    running: int
    miss_rate: float
    evicted_share: float
    working_set_tokens: float
    fewest: int
    queue_seconds: float
    fewest_recently: int
    kv_utilization: float
    slot_utilization: float
    prefill_utilization: float
    counted: bool
    settled: bool

    @property
    def traffic(self) -> bool:
        """Whether there is any: without, nothing is known of what the pool should be like."""
        return self.requests > 0 or self.waiting > 0

    @property
    def cache_pressure(self) -> float:
        """The cache that is needed over the cache there is.

        Not above 1 while evictions cost no more than is tolerated, whatever the working set is
        reckoned to be. When they do cost more, the caches that cost it were too small at least by
        that share.
        """
        if not self.workers or not self.kv_tokens:
            return 0.0
        reckoned = _ratio(self.working_set_tokens, FILL * self.kv_tokens)
        if self.evicted_share <= TOLERATED:
            return min(1.0, reckoned)
        return max(reckoned, (1 + self.evicted_share) * self.fewest / self.workers)


def read(window: Window, now_there: Demand, size: int, now: float) -> Signals:
    """The signals of a pool.

    Args:
        window: what all gateways have counted.
        now_there: its workers as they are now, which is what an entry counts of them.
        size: workers there are, also those that take nothing yet.
        now: in seconds, on the clock of the window's entries.
    """
    spans, complete = window.spans, window.complete_seconds(now)
    counted, recent = window.last(spans.traffic, now), window.last(spans.recent, now)
    present = window.present(now)
    waiting = sum(each.waiting for each in present)
    waited = sum(each.waited_seconds for each in recent)
    waited += sum(each.waiting_seconds for each in present)
    prompt_tokens = sum(each.prompt_tokens for each in counted)
    cached_tokens = sum(each.cached_tokens for each in counted)
    seconds = min(spans.traffic, max(spans.recent, window.counted_seconds(now)))
    staffed = [each for each in recent if each.workers]
    rate = now_there.prefill_tokens_per_second
    return Signals(
        size=max(size, now_there.workers),
        workers=now_there.workers,
        kv_tokens=now_there.kv_tokens,
        requests=sum(each.requests for each in counted),
        waiting=waiting,
        running=now_there.used_slots,
        miss_rate=_share(prompt_tokens - cached_tokens, prompt_tokens),
        evicted_share=_share(sum(each.evicted_tokens for each in counted), prompt_tokens),
        working_set_tokens=window.reuse.working_set(TOLERATED * window.prompt_tokens, now),
        fewest=_fewest(counted, now_there.workers),
        queue_seconds=_ratio(waited, sum(each.requests for each in recent) + waiting)
        + _mean(_ratio(each.backlog_tokens, each.prefill_tokens_per_second) for each in staffed),
        fewest_recently=_fewest(recent, now_there.workers),
        kv_utilization=_share(_mean(each.used_blocks for each in staffed), now_there.blocks),
        slot_utilization=_ratio(
            _mean(each.used_slots for each in staffed) + waiting, now_there.slots
        ),
        prefill_utilization=_ratio((prompt_tokens - cached_tokens) / seconds, rate),
        counted=complete >= spans.traffic,
        settled=complete >= spans.settled,
    )


def _ratio(part: float, whole: float) -> float:
    """0 where nothing is known; what others report may be no number at all."""
    if not (part > 0 and whole > 0 and math.isfinite(part)):
        return 0.0
    return min(part / whole, LARGEST)


def _share(part: float, whole: float) -> float:
    return min(1.0, _ratio(part, whole))


def _mean(values: Iterable[float]) -> float:
    numbers = [*values]
    return sum(numbers) / len(numbers) if numbers else 0.0


def _fewest(counted: Iterable[Demand], workers: int) -> int:
    return min((each.workers for each in counted if each.workers), default=workers)
