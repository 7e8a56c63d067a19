"""The interface of a KV format: sizes, allocation, and reading and writing the KV of one layer.

A slot is one token's place in a layer: block * block_size + offset. Whatever a format adds, such as
scales, is local to the slot, so that a shared block never changes.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor


class KVShape(NamedTuple):
    """What the KV of one token is made of, and how many tokens make a block."""

    layers: int
    kv_heads: int
    head_dim: int
    block_size: int


class LayerKV(ABC):
    """The KV of one layer: `num_blocks * block_size` slots."""

    @abstractmethod
    def write(self, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store the KV of some tokens.

        Args:
            slots: [tokens] int64; -1 skips the token.
            keys: [tokens, kv_heads, head_dim], with their positions already in them.
            values: [tokens, kv_heads, head_dim].
        """

    @abstractmethod
    def gather(self, blocks: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Read the KV of one sequence, in the dtype of the compute.

        Args:
            blocks: [at least ceil(length / block_size)] int64, its block table.
            length: tokens wanted.

        Returns:
            Keys and values, [length, kv_heads, head_dim] each.
        """


class KVFormat(ABC):
    """How KV is kept in memory.

    Attributes:
        name: as `--kv-format` and the model card name it.
    """

    name: str

    @abstractmethod
    def bytes_per_block(self, shape: KVShape, dtype: torch.dtype) -> int:
        """Bytes of one block over all layers, keys and values, for a compute dtype."""

    @abstractmethod
    def allocate(
        self, shape: KVShape, num_blocks: int, device: torch.device, dtype: torch.dtype
    ) -> list[LayerKV]:
        """Memory for `num_blocks` blocks, one `LayerKV` a layer."""

    def blocks_in(
        self, budget_bytes: int, shape: KVShape, dtype: torch.dtype, at_least: int = 1
    ) -> int:
        """Blocks that `budget_bytes` pay for.

        Raises:
            ValueError: fewer than `at_least`, what one sequence needs.
        """
        each = self.bytes_per_block(shape, dtype)
        num_blocks = budget_bytes // each
        if num_blocks < at_least:
            raise ValueError(
                f"KV memory of {budget_bytes} bytes holds {num_blocks} blocks of "
                f"{shape.block_size} tokens in format {self.name}; "
                f"at least {at_least} blocks, {at_least * each} bytes, are needed"
            )
        return num_blocks


def written(slots: Tensor, *rows: Tensor) -> tuple[Tensor, ...]:
    """`slots` and the rows that belong to them, without those to skip (slot -1)."""
    kept = slots >= 0
    if bool(kept.all()):
        return slots, *rows
    return slots[kept], *(row[kept] for row in rows)


def paged(memory: Tensor, block_size: int, blocks: Tensor, length: int) -> Tensor:
    """From `memory` [slots, ...], the first `length` of the sequence with the table `blocks`."""
    needed = blocks[: -(-length // block_size)]
    by_block = memory.view(-1, block_size, *memory.shape[1:])
    return by_block.index_select(0, needed).flatten(0, 1)[:length]
