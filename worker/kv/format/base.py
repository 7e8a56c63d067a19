"""The interface of a row format: how the keys or the values of one layer lie in memory.

A row is the head_dim elements of one token and KV head. Every tensor of a format has the layout
[num_blocks, kv_heads, block_size, ...], so that what attention reads of a block for one head is one
contiguous run. Whatever a format adds to the elements, such as scales, belongs to its row and lies
beside it, so that a shared block never changes.

A slot is one token's place in a layer: block * block_size + offset.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from worker.kv.format.hadamard import hadamard, rotated


class KVShape(NamedTuple):
    """What the KV of one token is made of, and how many tokens make a block."""

    layers: int
    kv_heads: int
    head_dim: int
    block_size: int


class Rows(ABC):
    """The keys or the values of one layer. Its tensors are public: fused kernels read them.

    Args:
        shape: of the model's KV.
        num_blocks: there is memory for.
        device: of the memory.
        dtype: of the compute; rows are written and read in it.

    Raises:
        ValueError: the format cannot hold rows of this head_dim.

    Attributes:
        rotates: whether rows are stored rotated, as keys may be: a few of their channels are far
            larger than the others and would make the steps of all of them coarse.
        run: consecutive elements that are rotated together; 1 where none are.
    """

    rotates: ClassVar[bool] = False

    def __init__(
        self, shape: KVShape, num_blocks: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.block_size = shape.block_size
        self.dtype = dtype
        self._size = (num_blocks, shape.kv_heads, shape.block_size)
        self._device = device
        self._rotation = hadamard(shape.head_dim, device) if self.rotates else None
        self.run = 1 if self._rotation is None else len(self._rotation)

    @property
    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """All memory there is, [num_blocks, kv_heads, block_size, ...] each."""

    def write(self, slots: Tensor, rows: Tensor) -> None:
        """Store the rows of some tokens.

        Args:
            slots: [tokens] int64, from 0.
            rows: [tokens, kv_heads, head_dim].
        """
        self._store(slots, self.rotate_queries(rows))

    @abstractmethod
    def _store(self, slots: Tensor, rows: Tensor) -> None:
        """`write`, after the rotation."""

    @abstractmethod
    def gather(self, blocks: Tensor, length: int) -> Tensor:
        """Read the rows of one sequence, as they were before they were stored.

        Args:
            blocks: [at least ceil(length / block_size)] int64, its block table.
            length: tokens wanted.

        Returns:
            [kv_heads, length, head_dim] of the compute's dtype. Rotated keys stay rotated.
        """

    def rotate_queries(self, queries: Tensor) -> Tensor:
        """Queries [..., head_dim] for dot products with these rows, which may be rotated."""
        return queries if self._rotation is None else rotated(queries, self._rotation)

    def _allocate(self, *row: int, dtype: torch.dtype) -> Tensor:
        """Zeros: `row` elements for each slot and KV head."""
        return torch.zeros((*self._size, *row), device=self._device, dtype=dtype)

    def _put(self, memory: Tensor, slots: Tensor, rows: Tensor) -> None:
        """Into `memory`, `rows` [tokens, kv_heads, ...] at `slots`."""
        memory[slots // self.block_size, :, slots % self.block_size] = rows

    def _take(self, memory: Tensor, blocks: Tensor, length: int) -> Tensor:
        """From `memory`, [kv_heads, length, ...] of the sequence with the table `blocks`."""
        needed = blocks[: -(-length // self.block_size)]
        return memory.index_select(0, needed).transpose(0, 1).flatten(1, 2)[:, :length]
