"""Format `none`: rows as the model computes them, exact."""

import torch
from torch import Tensor

from worker.kv.format.base import KVShape, Rows


class NoneRows(Rows):
    """The bits of the compute dtype an element.

    Attributes:
        elements: [num_blocks, kv_heads, block_size, head_dim] of the compute dtype.
    """

    def __init__(
        self, shape: KVShape, num_blocks: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__(shape, num_blocks, device, dtype)
        self.elements = self._allocate(shape.head_dim, dtype=dtype)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """See `Rows.tensors`."""
        return (self.elements,)

    def _store(self, slots: Tensor, rows: Tensor) -> None:
        self._put(self.elements, slots, rows)

    def gather(self, blocks: Tensor, length: int) -> Tensor:
        """See `Rows.gather`."""
        return self._take(self.elements, blocks, length)
