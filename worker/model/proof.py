"""The proof that a model runs right over paged KV: the same short prompt, both ways.

Paged, the prompt comes in two chunks and lies in blocks out of order, so that the second chunk must
read what the first one wrote.
"""

from typing import Any

import torch
from torch import Tensor

from worker.attention.base import PagedBatch
from worker.kv.format import KVFormat, by_name
from worker.model.paged import PagedModel

_BLOCK_SIZE = 4
_TABLE = (2, 0, 1)
_CHUNKS = (7, 5)
_EXACT = by_name("none")


@torch.inference_mode()
def own_logits(model: Any) -> Tensor:
    """Logits [tokens, vocab] float32 of the prompt, by a transformers model as it comes."""
    prompt = _prompt(model.config.vocab_size, model.device)
    logits: Tensor = model(input_ids=prompt[None], use_cache=False).logits[0]
    return logits.float()


def paged_logits(model: PagedModel, kv_format: KVFormat = _EXACT) -> Tensor:
    """The same over paged KV."""
    prompt = _prompt(model.spec.vocab_size, model.device)
    table = torch.tensor(_TABLE, device=model.device)
    shape = model.spec.kv_shape(_BLOCK_SIZE)
    kv = kv_format.allocate(shape, len(_TABLE), model.device, model.dtype)
    logits, done = [], 0
    for new in _CHUNKS:
        positions = torch.arange(done, done + new, device=model.device)
        done += new
        batch = PagedBatch(
            token_ids=prompt[positions],
            positions=positions,
            slots=table[positions // _BLOCK_SIZE] * _BLOCK_SIZE + positions % _BLOCK_SIZE,
            block_tables=table[None],
            query_starts=torch.tensor([0, new], device=model.device),
            context_lengths=torch.tensor([done], device=model.device),
            sample_rows=torch.arange(new, device=model.device),
        )
        logits.append(model.forward(batch, kv))
    return torch.cat(logits)


def _prompt(vocab_size: int, device: torch.device) -> Tensor:
    return torch.arange(1, 1 + sum(_CHUNKS), device=device) * 7 % vocab_size
