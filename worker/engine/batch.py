"""From the scheduler's chunks to the tensors of one step."""

from array import array
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from radixgate.prefix import TOKEN_BYTES
from torch import Tensor

from worker.attention.base import PagedBatch
from worker.engine.scheduler import Chunk
from worker.engine.sequence import Sequence
from worker.kv.manager import SequenceKV


def build_batch(chunks: list[Chunk], block_size: int, device: torch.device) -> PagedBatch:
    """Pack `chunks`, at least one, in their order.

    Logits are wanted of the last row of each chunk, in the same order: for the next token where the
    chunk completes its sequence, and elsewhere as proof that what was computed is sound.
    A token whose KV is stored already, the last of a fully cached prompt, gets the slot -1.
    """
    sequences = [chunk.sequence for chunk in chunks]
    starts = np.array([chunk.start for chunk in chunks])
    stops = np.array([chunk.stop for chunk in chunks])
    query_starts = np.concatenate([[0], (stops - starts).cumsum()])
    row_of = np.repeat(np.arange(len(chunks)), stops - starts)
    positions = np.arange(len(row_of)) + (starts - query_starts[:-1])[row_of]
    tables = _tables([_kv(sequence).blocks for sequence in sequences])
    slots = tables[row_of, positions // block_size] * block_size + positions % block_size
    slots[positions < np.array([_kv(sequence).stored for sequence in sequences])[row_of]] = -1
    batch = PagedBatch(
        token_ids=_token_ids(chunks),
        positions=torch.from_numpy(positions),
        slots=torch.from_numpy(slots),
        block_tables=torch.from_numpy(tables),
        query_starts=torch.from_numpy(query_starts),
        context_lengths=torch.from_numpy(stops),
        sample_rows=torch.from_numpy(query_starts[1:] - 1),
    )
    return batch if device.type == "cpu" else _moved(batch, device)


def _kv(sequence: Sequence) -> SequenceKV:
    assert sequence.kv
    return sequence.kv


def _tables(blocks: "list[array[int]]") -> NDArray[np.int64]:
    """Block tables as rows, zeros behind those that are shorter."""
    most = max(map(len, blocks))
    zeros = array("q", [0]) * most
    padded = chain.from_iterable((table, zeros[len(table) :]) for table in blocks)
    return np.frombuffer(bytearray().join(padded), np.int64).reshape(-1, most)


def _token_ids(chunks: list[Chunk]) -> Tensor:
    packed = b"".join(
        chunk.sequence.tokens.packed[chunk.start * TOKEN_BYTES : chunk.stop * TOKEN_BYTES]
        for chunk in chunks
    )
    return torch.from_numpy(np.frombuffer(packed, "<u4").astype(np.int64))


def _moved(batch: PagedBatch, device: torch.device) -> PagedBatch:
    return PagedBatch(
        **{name: getattr(batch, name).to(device) for name in PagedBatch.__dataclass_fields__}
    )
