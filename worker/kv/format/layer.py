"""The KV of a layer, and of a model: a row format for the keys and one for the values.

Sizes are those of the tensors themselves: what a block costs is read off an allocation that takes
no memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from worker.kv.format.base import KVShape, Rows

_NO_MEMORY = torch.device("meta")


class LayerKV(NamedTuple):
    """The KV of one layer: `num_blocks * block_size` slots."""

    keys: Rows
    values: Rows

    def write(self, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store the KV of some tokens.

        Args:
            slots: [tokens] int64; -1 skips the token.
            keys: [tokens, kv_heads, head_dim], with their positions already in them.
            values: [tokens, kv_heads, head_dim].
        """
        kept = slots >= 0
        if not bool(kept.all()):
            slots, keys, values = slots[kept], keys[kept], values[kept]
        self.keys.write(slots, keys)
        self.values.write(slots, values)

    def gather(self, blocks: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one sequence; see `Rows.gather`."""
        return self.keys.gather(blocks, length), self.values.gather(blocks, length)


class LayerFormat(NamedTuple):
    """How one layer keeps its KV."""

    keys: type[Rows]
    values: type[Rows]

    def allocate(
        self, shape: KVShape, num_blocks: int, device: torch.device, dtype: torch.dtype
    ) -> LayerKV:
        """Memory for `num_blocks` blocks of one layer."""
        return LayerKV(*(rows(shape, num_blocks, device, dtype) for rows in self))


@dataclass(frozen=True, slots=True)
class KVFormat:
    """How a model keeps its KV.

    Args:
        name: as `--kv-format` and the model card name it.
        default: the format of every layer,
        exceptions: but these, by number from 0.
    """

    name: str
    default: LayerFormat
    exceptions: Mapping[int, LayerFormat] = field(default_factory=dict)

    def allocate(
        self, shape: KVShape, num_blocks: int, device: torch.device, dtype: torch.dtype
    ) -> list[LayerKV]:
        """Memory for `num_blocks` blocks, one `LayerKV` a layer.

        Raises:
            ValueError: the format does not fit `shape`.
        """
        if (last := max(self.exceptions, default=0)) >= shape.layers:
            raise ValueError(
                f"KV format {self.name} names layer {last}; "
                f"the model has layers 0 to {shape.layers - 1}"
            )
        return [
            self.exceptions.get(layer, self.default).allocate(shape, num_blocks, device, dtype)
            for layer in range(shape.layers)
        ]

    def bytes_per_block(self, shape: KVShape, dtype: torch.dtype) -> int:
        """Bytes of one block over all layers, keys and values, for a compute dtype.

        Raises:
            ValueError: the format does not fit `shape`.
        """
        return sum(
            tensor.nbytes
            for layer in self.allocate(shape, 1, _NO_MEMORY, dtype)
            for rows in layer
            for tensor in rows.tensors
        )

    def bits_per_element(self, shape: KVShape, dtype: torch.dtype) -> float:
        """Bits that an element of a key or value costs, all scales included, over all layers.

        Raises:
            ValueError: the format does not fit `shape`.
        """
        layers, heads, dim, block_size = shape
        elements = 2 * layers * heads * dim * block_size
        return self.bytes_per_block(shape, dtype) * 8 / elements

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
