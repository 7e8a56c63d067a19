"""Choosing the next token: a function of (logits, seed, position) alone.

The uniform number for a position comes from a hash of (seed, position) and goes through the inverse
of the cumulative distribution. So a sequence that is preempted, retried or moved to another worker
continues with the tokens it would have had, whatever else is in its batch.
"""

import math

import numpy as np
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
        # NOTE: on a CPU numpy's way is many times faster than torch's.
        largest = largest_by_numpy if rows.device.type == "cpu" else largest_by_torch
        self._likeliest, self._tops = largest(rows)

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
        if 0 < params.top_k < len(scaled):
            least, total = scaled.topk(params.top_k).values[-1], None
        elif params.top_p < 1:
            # NOTE: all that weigh less than this weigh less together than what `top_p` leaves out.
            total = scaled.exp().sum()
            least = (total * (1 - params.top_p) / len(scaled)).log()
        else:
            return _inverse(scaled.exp().cumsum(0), u)
        # NOTE: sorting the whole vocabulary would take many times longer than all the rest.
        ids = (scaled >= least).nonzero()[:, 0]
        ranked, order = scaled[ids].sort(descending=True, stable=True)
        if params.top_k:
            ranked = ranked[: params.top_k]
        cumulative = ranked.exp().cumsum(0)
        share = params.top_p * (cumulative[-1] if total is None else total)
        kept = 1 + int(torch.searchsorted(cumulative, share))
        return int(ids[order[_inverse(cumulative[:kept], u)]])


def largest_by_numpy(rows: Tensor) -> tuple[list[int], list[float]]:
    """Of each row the id of the largest, the lowest of equals, and its value; NaN is largest."""
    array = rows.numpy(force=True)
    ids = array.argmax(1)
    return ids.tolist(), array[np.arange(len(ids)), ids].tolist()


def largest_by_torch(rows: Tensor) -> tuple[list[int], list[float]]:
    """The same, found where the rows are."""
    top = rows.max(1)
    # NOTE: in one transfer, since each waits for the device; a double holds every id.
    ids, values = torch.stack((top.indices.double(), top.values.double())).tolist()
    return [int(token) for token in ids], values


def _inverse(cumulative: Tensor, u: float) -> int:
    """The first index whose cumulative weight exceeds the share `u` of the whole."""
    index = int(torch.searchsorted(cumulative, u * float(cumulative[-1]), right=True))
    return min(index, len(cumulative) - 1)
