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


class Logits:
    """The logits of one step: scanned once, all rows together, where they are.

    Args:
        rows: [R, vocab] fp32, on any device.
    """

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows
        self._likeliest, self._tops = _largest(rows)

    def likeliest(self, row: int, position: int) -> int:
        """The id of the largest logit of `row`, which is for `position`; the lowest of equals.

        Raises:
            FloatingPointError: the row holds a NaN, or has no finite maximum.
        """
        top = self._tops[row]
        if not math.isfinite(top):
            raise FloatingPointError(
                f"the largest of the model's logits for position {position} is {top}"
            )
        return self._likeliest[row]

    def sample(self, row: int, params: SamplingParams, position: int) -> int:
        """The id of the token at `position`, by the logits of `row`.

        Temperature first, then the `top_k` most likely, then of these the most likely ones whose
        probabilities sum to `top_p`. Equal logits rank by lower id.

        Args:
            row: of these logits.
            params: temperature, cuts and seed.
            position: of the new token in its sequence, prompt included.

        Raises:
            FloatingPointError: see `likeliest`.
        """
        likeliest = self.likeliest(row, position)
        if params.temperature == 0:
            return likeliest

        # NOTE: subtract before dividing, so that no temperature overflows.
        scaled = (self._rows[row].double() - self._tops[row]) / params.temperature
        u = uniform(params.seed, position)
        if 0 < params.top_k < len(scaled) or params.top_p < 1:
            scaled, ids = scaled.sort(descending=True, stable=True)
            if params.top_k:
                scaled = scaled[: params.top_k]
            cumulative = scaled.softmax(0).cumsum(0)
            kept = 1 + int(torch.searchsorted(cumulative, params.top_p))
            return int(ids[_inverse(cumulative[:kept], u)])
        return _inverse(scaled.softmax(0).cumsum(0), u)


def _largest(rows: Tensor) -> tuple[list[int], list[float]]:
    """Of each row the id of the largest, the lowest of equals, and its value; NaN is largest."""
    # NOTE: on a CPU numpy's argmax is many times faster than torch's.
    on_cpu = rows.device.type == "cpu"
    ids = torch.from_numpy(rows.numpy(force=True).argmax(1)) if on_cpu else rows.argmax(1)
    tops = rows.gather(1, ids[:, None])[:, 0]
    # NOTE: together, since each copy from another device waits for it; a double holds every id.
    found, values = torch.stack((ids.double(), tops.double())).tolist()
    return [int(token) for token in found], values


def _inverse(cumulative: Tensor, u: float) -> int:
    """The first index whose cumulative weight exceeds the share `u` of the whole."""
    index = int(torch.searchsorted(cumulative, u * float(cumulative[-1]), right=True))
    return min(index, len(cumulative) - 1)
