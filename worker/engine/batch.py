"""From the scheduler's chunks to the tensors of one step."""

import torch
from torch import Tensor

from worker.attention.base import PagedBatch
from worker.engine.scheduler import Chunk


def build_batch(chunks: list[Chunk], block_size: int, device: torch.device) -> PagedBatch:
    """Pack `chunks`, at least one, in their order.

    Logits are wanted of the last row of each chunk, in the same order: for the next token where the
    chunk completes its sequence, and elsewhere as proof that what was computed is sound.
    A token whose KV is stored already, the last of a fully cached prompt, gets the slot -1.
    """
    lengths = torch.tensor([chunk.length for chunk in chunks])
    query_starts = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    token_ids = [
        token for chunk in chunks for token in chunk.sequence.tokens.ids(chunk.start, chunk.stop)
    ]
    batch = PagedBatch(
        token_ids=torch.tensor(token_ids),
        positions=torch.cat([torch.arange(chunk.start, chunk.stop) for chunk in chunks]),
        slots=torch.cat([_slots(chunk, block_size) for chunk in chunks]),
        block_tables=torch.nn.utils.rnn.pad_sequence(
            [_table(chunk) for chunk in chunks], batch_first=True
        ),
        query_starts=query_starts,
        context_lengths=torch.tensor([chunk.stop for chunk in chunks]),
        sample_rows=query_starts[1:] - 1,
    )
    return batch if device.type == "cpu" else _moved(batch, device)


def _table(chunk: Chunk) -> Tensor:
    assert chunk.sequence.kv
    return torch.tensor(chunk.sequence.kv.blocks)


def _slots(chunk: Chunk, block_size: int) -> Tensor:
    assert chunk.sequence.kv
    positions = torch.arange(chunk.start, chunk.stop)
    slots = _table(chunk)[positions // block_size] * block_size + positions % block_size
    return slots.masked_fill(positions < chunk.sequence.kv.stored, -1)


def _moved(batch: PagedBatch, device: torch.device) -> PagedBatch:
    return PagedBatch(
        **{name: getattr(batch, name).to(device) for name in PagedBatch.__dataclass_fields__}
    )
