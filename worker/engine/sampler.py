"""Choosing the next token: a function of (logits, seed, position) alone.

The uniform number for a position comes from a hash of (seed, position) and goes through the inverse
of the cumulative distribution. So a sequence that is preempted, retried or moved to another worker
continues with the tokens it would have had, whatever else is in its batch.
"""

import math

import torch
import xxhash
from torch import Tensor

from worker.engine.request import SamplingParams


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) for the token at `position` of its sequence: 53 bits of XXH3-64."""
    digest = xxhash.xxh3_64_intdigest(position.to_bytes(8, "little"), seed)
    # NOTE: 53 bits, since dividing all 64 would round the largest digests up to 1.0.
    return (digest >> 11) / 2**53


def largest(logits: Tensor, position: int) -> int:
    """The id of the largest of the logits for `position`, the lowest of equals.

    Raises:
        FloatingPointError: they hold a NaN, or have no finite maximum.
    """
    # NOTE: numpy's argmax is many times faster than torch's; it finds a NaN where there is one.
    index = int(logits.numpy(force=True).argmax())
    top = float(logits[index])
    if not math.isfinite(top):
        raise FloatingPointError(
            f"the largest of the model's logits for position {position} is {top}"
        )
    return index


def sample(logits: Tensor, params: SamplingParams, position: int) -> int:
    """The id of the token at `position`.

    Temperature first, then the `top_k` most likely, then of these the most likely ones whose
    probabilities sum to `top_p`. Equal logits rank by lower id.

    Args:
        logits: [vocab] fp32.
        params: temperature, cuts and seed.
        position: of the new token in its sequence, prompt included.

    Raises:
        FloatingPointError: see `largest`.
    """
    likeliest = largest(logits, position)
    if params.temperature == 0:
        return likeliest

    # NOTE: subtract before dividing, so that no temperature overflows.
    scaled = (logits.double() - logits[likeliest]) / params.temperature
    if 0 < params.top_k < len(scaled) or params.top_p < 1:
        scaled, ids = scaled.sort(descending=True, stable=True)
        if params.top_k:
            scaled = scaled[: params.top_k]
        cumulative = scaled.softmax(0).cumsum(0)
        kept = 1 + int(torch.searchsorted(cumulative, params.top_p))
        return int(ids[_inverse(cumulative[:kept], uniform(params.seed, position))])
    return _inverse(scaled.softmax(0).cumsum(0), uniform(params.seed, position))


def _inverse(cumulative: Tensor, u: float) -> int:
    """The first index whose cumulative weight exceeds the share `u` of the whole."""
    index = int(torch.searchsorted(cumulative, u * float(cumulative[-1]), right=True))
    return min(index, len(cumulative) - 1)
