"""Format `int8`: 8 bits an element, and a float32 scale for each token and KV head.

That is 8.5 bits an element at head_dim 64. Rounding is to nearest, so an element is off by at most
half a step, its row's largest magnitude / 254.
"""

import torch
from torch import Tensor

from worker.kv.format.base import KVFormat, KVShape, LayerKV, paged, written

_LARGEST = 127


class Int8Format(KVFormat):
    """Symmetric, without zero points."""

    name = "int8"

    def bytes_per_block(self, shape: KVShape, dtype: torch.dtype) -> int:  # noqa: ARG002
        """One byte an element and 4 bytes a row, whatever the compute dtype is."""
        layers, heads, dim, block_size = shape
        return 2 * layers * block_size * heads * (dim + torch.float32.itemsize)

    def allocate(
        self, shape: KVShape, num_blocks: int, device: torch.device, dtype: torch.dtype
    ) -> list[LayerKV]:
        """See `KVFormat.allocate`."""
        return [_Int8Layer(shape, num_blocks, device, dtype) for _ in range(shape.layers)]


class _Int8Layer(LayerKV):
    def __init__(
        self, shape: KVShape, num_blocks: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        slots = num_blocks * shape.block_size
        self._keys = _Int8Rows(shape, slots, device, dtype)
        self._values = _Int8Rows(shape, slots, device, dtype)

    def write(self, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        slots, keys, values = written(slots, keys, values)
        self._keys.write(slots, keys)
        self._values.write(slots, values)

    def gather(self, blocks: Tensor, length: int) -> tuple[Tensor, Tensor]:
        return self._keys.gather(blocks, length), self._values.gather(blocks, length)


class _Int8Rows:
    """One quantized row of head_dim for each slot and KV head."""

    def __init__(
        self, shape: KVShape, slots: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self._block_size = shape.block_size
        self._dtype = dtype
        size = (slots, shape.kv_heads)
        self._steps = torch.zeros((*size, shape.head_dim), device=device, dtype=torch.int8)
        self._scales = torch.zeros(size, device=device, dtype=torch.float32)

    def write(self, slots: Tensor, rows: Tensor) -> None:
        rows = rows.float()
        scales = rows.abs().amax(dim=-1) / _LARGEST
        # NOTE: a row of zeros has scale 0; dividing by the smallest normal number keeps it zeros.
        divisors = scales.clamp(min=torch.finfo(torch.float32).tiny).unsqueeze(-1)
        self._steps[slots] = (rows / divisors).round().clamp(-_LARGEST, _LARGEST).to(torch.int8)
        self._scales[slots] = scales

    def gather(self, blocks: Tensor, length: int) -> Tensor:
        steps = paged(self._steps, self._block_size, blocks, length)
        scales = paged(self._scales, self._block_size, blocks, length)
        return (steps * scales.unsqueeze(-1)).to(self._dtype)
