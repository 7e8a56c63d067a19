"""What a leaving worker is to leave behind: which of its hot prefixes are computed elsewhere. Pure.

A prefix that is asked for again is computed again then, while a client waits. To compute it before
is the same work at a time when nobody waits, unless nobody asks. So it pays when

    returns · prefill > (1 - returns) · (prefill / 4 + interfere) + evict

`returns` is the chance that it is asked for again. What must be evicted for it counts in full,
since it may be as hot.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from math import exp
from typing import Final

from gateway.fleet.worker import FleetWorker
from gateway.route.cost import CostTerms
from gateway.route.router import Estimate, Prompt

MAX_TOKENS: Final = 2**18
"""That one worker leaves behind: a megabyte of token ids."""

IDLE_WEIGHT: Final = 0.25
"""What computing in vain delays others by, as a share of its time: little, below all priorities."""

MEMORY_SHARE: Final = 8
"""One part in so many of the KV memory of those that stay is the most that is asked of them."""


class Verdict(Enum):
    """Of a hot prefix."""

    HELD = "held"  # Another worker has it, or is about to.
    DECLINED = "declined"  # Computing it costs more than it saves.
    WORTHWHILE = "worthwhile"


def judge(hits: float, prompt: Prompt, estimates: Sequence[Estimate]) -> Verdict:
    """Whether to compute a prefix at the first of `estimates`, of all who may have it.

    `hits`: how many requests are going to want it.
    """
    whole = len(prompt.boundaries) * prompt.stride
    if any(estimate.believed_tokens >= whole for estimate in estimates):
        return Verdict.HELD
    return Verdict.WORTHWHILE if pays(hits, estimates[0].terms) else Verdict.DECLINED


def pays(hits: float, terms: CostTerms) -> bool:
    """Whether it is better to compute now what costs `terms` than when the first request comes."""
    returns = 1 - exp(-hits)
    in_vain = IDLE_WEIGHT * terms.prefill_ms + terms.interfere_ms
    return returns * terms.prefill_ms > (1 - returns) * in_vain + terms.evict_ms


def most_tokens(staying: Iterable[FleetWorker]) -> int:
    """Of all prefixes together, that the workers that stay may be asked to compute."""
    return min(MAX_TOKENS, sum(worker.kv_tokens for worker in staying) // MEMORY_SHARE)


def unfolded(parts: Iterable[tuple[int, bytes]]) -> list[bytes]:
    """Whole prefixes, packed; each part is which one it extends, counted from 1, and the rest.

    Raises:
        ValueError: one extends a prefix that is not before it.
    """
    whole = [b""]
    for extends, packed in parts:
        if extends >= len(whole):
            raise ValueError(f"prefix {len(whole)} extends prefix {extends}")
        whole.append(whole[extends] + packed)
    return whole[1:]
