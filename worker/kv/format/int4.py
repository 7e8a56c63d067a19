"""Format `int4`: 4 bits an element, and a scale and a minimum for each group: 5 bits at most sizes.

    element = code * scale + minimum        code from 0 to 15, a group is up to 32 elements

Scales and minima are bfloat16, which has the range of float32 and becomes one by a shift. They are
rounded outwards, so that codes reach every element of the group, and rounding to nearest leaves an
element off by at most scale / 2. With the range r of the group and m the magnitude of its minimum,

    scale <= (r + m / 128) / 15 * (1 + 1 / 128)

A group that is not finite reads back as NaN.
"""

from math import gcd

import torch
from torch import Tensor

from worker.kv.format.base import KVShape, Rows

_LARGEST_CODE = 15
_MOST_IN_GROUP = 32


class Int4Rows(Rows):
    """Asymmetric, in groups of consecutive elements.

    Attributes:
        group: elements of a group: 32, or the largest power of two below it that divides head_dim.
        packed: [num_blocks, kv_heads, block_size, head_dim / 2] uint8; byte i has the code of
            element i in its low half and that of element i + head_dim / 2 in its high half.
        ranges: [num_blocks, kv_heads, block_size, head_dim / group, 2] bfloat16; the minimum and
            the scale of each group, side by side, for they are read together.
    """

    def __init__(
        self, shape: KVShape, num_blocks: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__(shape, num_blocks, device, dtype)
        if shape.head_dim % 2:
            raise ValueError(
                f"KV format int4 keeps two elements in a byte; the model's head_dim is odd, "
                f"{shape.head_dim}"
            )
        self.group = gcd(shape.head_dim, _MOST_IN_GROUP)
        self.packed = self._allocate(shape.head_dim // 2, dtype=torch.uint8)
        self.ranges = self._allocate(shape.head_dim // self.group, 2, dtype=torch.bfloat16)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """See `Rows.tensors`."""
        return self.packed, self.ranges

    def _store(self, slots: Tensor, rows: Tensor) -> None:
        groups = torch.unflatten(rows.float(), -1, (-1, self.group))
        minima = _at_most(groups.amin(dim=-1))
        offsets = groups - minima.float().unsqueeze(-1)
        scales = -_at_most(-offsets.amax(dim=-1) / _LARGEST_CODE)
        # NOTE: equal elements may have scale 0; this divisor keeps their codes zeros.
        divisors = scales.float().clamp(min=torch.finfo(torch.float32).tiny).unsqueeze(-1)
        codes = (offsets / divisors).round().clamp(0, _LARGEST_CODE).to(torch.uint8)
        low, high = codes.flatten(-2).chunk(2, dim=-1)
        self._put(self.packed, slots, low | high << 4)
        self._put(self.ranges, slots, torch.stack((minima, scales), dim=-1))

    def gather(self, blocks: Tensor, length: int) -> Tensor:
        """See `Rows.gather`."""
        packed = self._take(self.packed, blocks, length)
        minima, scales = self._take(self.ranges, blocks, length).float().chunk(2, dim=-1)
        codes = torch.cat((packed & 15, packed >> 4), dim=-1)
        groups = torch.unflatten(codes, -1, (-1, self.group)) * scales + minima
        return groups.flatten(-2).to(self.dtype)


class RotatedInt4Rows(Int4Rows):
    """For keys."""

    rotates = True


def _at_most(numbers: Tensor) -> Tensor:
    """The largest bfloat16 that is not above each of the float32 `numbers`."""
    nearest = numbers.bfloat16()
    below = torch.nextafter(nearest, torch.full_like(nearest, -torch.inf))
    return torch.where(nearest.float() > numbers, below, nearest)
