"""What one step computes, and the interface of the attention that computes it.

A batch is packed: the new tokens of its sequences one after the other in one row, no padding.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from worker.kv.format import LayerKV


@dataclass(frozen=True, slots=True, eq=False)
class PagedBatch:
    """One step of S sequences with T new tokens in all; every tensor is int64.

    Attributes:
        token_ids: [T], sequence after sequence.
        positions: [T], in their sequences, from 0.
        slots: [T], where their KV is written; -1: it is there already and must not be written.
        block_tables: [S, most blocks of any]; entries beyond a sequence's context are not read.
        query_starts: [S + 1], sequence s has the rows query_starts[s] to query_starts[s + 1].
        context_lengths: [S], tokens of the sequence up to its last new one, that included.
        sample_rows: [R], the rows whose logits are wanted.
    """

    token_ids: Tensor
    positions: Tensor
    slots: Tensor
    block_tables: Tensor
    query_starts: Tensor
    context_lengths: Tensor
    sample_rows: Tensor


class AttentionBackend(Protocol):
    """Causal attention of new tokens over everything before them in their own sequences."""

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        batch: PagedBatch,
        kv: LayerKV,
        scale: float,
    ) -> Tensor:
        """Write the new tokens' KV to their slots, then attend.

        Args:
            queries: [T, heads, head_dim]; query head h reads KV head h // (heads / kv_heads).
            keys: [T, kv_heads, head_dim], with their positions already in them, as the queries.
            values: [T, kv_heads, head_dim].
            batch: where the rows belong.
            kv: the layer's memory.
            scale: of the logits, before the softmax.

        Returns:
            [T, heads, head_dim].
        """
        ...

    def warm_up(self, layers: list[LayerKV]) -> None:
        """Do now what the first `attend` over each of `layers` would take long for."""
        ...
