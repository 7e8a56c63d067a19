"""The reference backend: plain torch, any device, any KV format; sequence after sequence."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from worker.attention.base import PagedBatch
from worker.kv.format import LayerKV


class TorchAttention:
    """An `AttentionBackend`. Reads each context as one contiguous copy."""

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
        """See `AttentionBackend.attend`."""
        kv.write(batch.slots, keys, values)
        queries = kv.keys.rotate_queries(queries)
        output = torch.empty_like(queries)
        starts = batch.query_starts.tolist()
        for sequence, length in enumerate(batch.context_lengths.tolist()):
            rows = slice(starts[sequence], starts[sequence + 1])
            context = kv.gather(batch.block_tables[sequence], length)
            output[rows] = _attend_one(queries[rows], *context, scale)
        return output

    def warm_up(self, layers: list[LayerKV]) -> None:
        """See `AttentionBackend.warm_up`; there is nothing to do."""


def _attend_one(queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """The last len(queries) tokens of one sequence over all of it; same shape as `queries`.

    Keys and values are [kv_heads, length, head_dim].
    """
    new, length = len(queries), keys.shape[1]
    # Row i is position length - new + i and sees the positions up to its own.
    mask = (
        torch.ones(new, length, dtype=torch.bool, device=queries.device).tril(length - new)
        if 1 < new < length
        else None
    )
    attended = scaled_dot_product_attention(
        queries.transpose(0, 1)[None],
        keys[None],
        values[None],
        attn_mask=mask,
        is_causal=1 < new == length,
        scale=scale,
        enable_gqa=True,
    )
    return attended[0].transpose(0, 1)
