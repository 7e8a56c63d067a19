"""What fits into a memory: tokens, and requests at once, in each KV format. Pure calculation.

    memory - weights - reserve = memory for KV = blocks * bytes of a block

What a block takes is what the formats themselves say, so a plan is what a worker gets.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from worker.kv.format import KVFormat, KVShape


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one device and what they are for.

    Args:
        total: there are.
        weights: of the model.
        reserve: for all that is neither weights nor KV, such as activations and kernels.

    Raises:
        ValueError: nothing is left for KV.
    """

    total: int
    weights: int
    reserve: int

    def __post_init__(self) -> None:
        if self.kv <= 0:
            raise ValueError(
                f"memory of {_gib(self.total)} leaves nothing for KV: "
                f"{_gib(self.weights)} are for weights, {_gib(self.reserve)} are kept in reserve"
            )

    @property
    def kv(self) -> int:
        """Bytes left for KV."""
        return self.total - self.weights - self.reserve


@dataclass(frozen=True, slots=True)
class Fit:
    """What fits in one format.

    Attributes:
        kv_format: its name.
        bits_per_element: scales included, over all layers.
        bytes_per_token: over all layers, keys and values.
        blocks: that fit.
        tokens: in those blocks.
        requests: for each context length asked for, how many requests of it, prompt and output
            together, hold their KV at once when they share nothing.
    """

    kv_format: str
    bits_per_element: float
    bytes_per_token: int
    blocks: int
    tokens: int
    requests: tuple[int, ...]


def plan(
    memory: Memory,
    shape: KVShape,
    dtype: torch.dtype,
    formats: Iterable[KVFormat],
    contexts: Sequence[int],
) -> list[Fit]:
    """What fits, format by format.

    Args:
        memory: to fill.
        shape: of the model's KV.
        dtype: the model computes in.
        formats: to compare.
        contexts: lengths in tokens, from 1.

    Raises:
        ValueError: a format does not fit `shape`.
    """
    return [_fit(memory, shape, dtype, kv_format, contexts) for kv_format in formats]


def _fit(
    memory: Memory,
    shape: KVShape,
    dtype: torch.dtype,
    kv_format: KVFormat,
    contexts: Sequence[int],
) -> Fit:
    blocks = kv_format.blocks_in(memory.kv, shape, dtype, at_least=0)
    return Fit(
        kv_format=kv_format.name,
        bits_per_element=kv_format.bits_per_element(shape, dtype),
        bytes_per_token=kv_format.bytes_per_block(shape, dtype) // shape.block_size,
        blocks=blocks,
        tokens=blocks * shape.block_size,
        requests=tuple(blocks // -(-context // shape.block_size) for context in contexts),
    )


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
