"""Formats `int8` and `fp8`: 8 bits an element, and a float32 scale a row: 8.5 bits at head_dim 64.

    element = step * scale        scale = the row's largest magnitude / the largest step

Rounding is to nearest. A row that is not finite reads back as NaN, so that it cannot go unnoticed.
"""

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from worker.kv.format.base import KVShape, Rows


class ScaledRows(Rows):
    """Symmetric, without zero points: a dot product with a row is `scale * (steps @ other)`.

    Attributes:
        steps: [num_blocks, kv_heads, block_size, head_dim] of `step_dtype`.
        scales: [num_blocks, kv_heads, block_size] float32.
    """

    step_dtype: ClassVar[torch.dtype]
    largest_step: ClassVar[float]

    def __init__(
        self, shape: KVShape, num_blocks: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__(shape, num_blocks, device, dtype)
        self.steps = self._allocate(shape.head_dim, dtype=self.step_dtype)
        self.scales = self._allocate(dtype=torch.float32)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """See `Rows.tensors`."""
        return self.steps, self.scales

    def _store(self, slots: Tensor, rows: Tensor) -> None:
        rows = rows.float()
        scales = rows.abs().amax(dim=-1) / self.largest_step
        # NOTE: a row of zeros has scale 0; dividing by the smallest normal number keeps it zeros.
        divisors = scales.clamp(min=torch.finfo(torch.float32).tiny).unsqueeze(-1)
        steps = (rows / divisors).clamp(-self.largest_step, self.largest_step)
        self._put(self.steps, slots, self._rounded(steps))
        self._put(self.scales, slots, scales)

    def gather(self, blocks: Tensor, length: int) -> Tensor:
        """See `Rows.gather`."""
        steps = self._take(self.steps, blocks, length).float()
        scales = self._take(self.scales, blocks, length)
        return (steps * scales.unsqueeze(-1)).to(self.dtype)

    @abstractmethod
    def _rounded(self, steps: Tensor) -> Tensor:
        """Float steps within ±largest_step, as `step_dtype`."""


class Int8Rows(ScaledRows):
    """Equal steps: an element is off by at most scale / 2, its row's largest magnitude / 254."""

    step_dtype = torch.int8
    largest_step = 127.0

    def _rounded(self, steps: Tensor) -> Tensor:
        return steps.round().to(torch.int8)


class RotatedInt8Rows(Int8Rows):
    """For keys."""

    rotates = True


class Fp8Rows(ScaledRows):
    """e4m3: an element is off by at most 1/16 of itself, or scale / 1024 when that is more."""

    step_dtype = torch.float8_e4m3fn
    largest_step = 448.0

    def _rounded(self, steps: Tensor) -> Tensor:
        return steps.to(torch.float8_e4m3fn)
