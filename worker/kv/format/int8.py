"""Format `int8`: 8 bits an element, and a float32 scale a row: 8.5 bits at head_dim 64.

    element = step * scale        scale = largest magnitude of the row / 127

Rounding is to nearest, so an element is off by at most half a scale.
"""

import torch
from torch import Tensor

from worker.kv.format.base import KVShape, Rows

_LARGEST = 127


class Int8Rows(Rows):
    """Symmetric, without zero points.

    Attributes:
        steps: [num_blocks, kv_heads, block_size, head_dim] int8.
        scales: [num_blocks, kv_heads, block_size] float32.
    """

    def __init__(
        self, shape: KVShape, num_blocks: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__(shape, num_blocks, device, dtype)
        self.steps = self._allocate(shape.head_dim, dtype=torch.int8)
        self.scales = self._allocate(dtype=torch.float32)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """See `Rows.tensors`."""
        return self.steps, self.scales

    def write(self, slots: Tensor, rows: Tensor) -> None:
        """See `Rows.write`."""
        rows = rows.float()
        scales = rows.abs().amax(dim=-1) / _LARGEST
        # NOTE: a row of zeros has scale 0; dividing by the smallest normal number keeps it zeros.
        divisors = scales.clamp(min=torch.finfo(torch.float32).tiny).unsqueeze(-1)
        steps = (rows / divisors).round().clamp(-_LARGEST, _LARGEST)
        self._put(self.steps, slots, steps.to(torch.int8))
        self._put(self.scales, slots, scales)

    def gather(self, blocks: Tensor, length: int) -> Tensor:
        """See `Rows.gather`."""
        steps = self._take(self.steps, blocks, length)
        scales = self._take(self.scales, blocks, length)
        return (steps * scales.unsqueeze(-1)).to(self.dtype)
