"""Format `none`: keys and values as the model computes them."""

import torch
from torch import Tensor

from worker.kv.format.base import KVFormat, KVShape, LayerKV, paged, written


class NoneFormat(KVFormat):
    """Exact; 2 elements of the compute dtype for each token, KV head and dimension."""

    name = "none"

    def bytes_per_block(self, shape: KVShape, dtype: torch.dtype) -> int:
        """Keys and values of `dtype`."""
        layers, heads, dim, block_size = shape
        return 2 * layers * block_size * heads * dim * dtype.itemsize

    def allocate(
        self, shape: KVShape, num_blocks: int, device: torch.device, dtype: torch.dtype
    ) -> list[LayerKV]:
        """See `KVFormat.allocate`."""
        return [_NoneLayer(shape, num_blocks, device, dtype) for _ in range(shape.layers)]


class _NoneLayer(LayerKV):
    def __init__(
        self, shape: KVShape, num_blocks: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        _, heads, dim, self._block_size = shape
        size = (num_blocks * self._block_size, heads, dim)
        self._keys = torch.zeros(size, device=device, dtype=dtype)
        self._values = torch.zeros(size, device=device, dtype=dtype)

    def write(self, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        slots, keys, values = written(slots, keys, values)
        self._keys[slots] = keys
        self._values[slots] = values

    def gather(self, blocks: Tensor, length: int) -> tuple[Tensor, Tensor]:
        return (
            paged(self._keys, self._block_size, blocks, length),
            paged(self._values, self._block_size, blocks, length),
        )
