"""The model over paged KV gives what transformers gives, cold, warm and in mixed batches."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from radixgate.namespace import NamespaceSeed
from radixgate.prefix import pack_tokens
from torch import Tensor
from transformers import AutoModelForCausalLM

from worker.attention.base import PagedBatch
from worker.kv.events import KvEvents
from worker.kv.format import LayerKV, by_name
from worker.kv.manager import KVManager, SequenceKV
from worker.kv.tokens import Tokens
from worker.model.loader import load_model
from worker.model.paged import PagedModel

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
BLOCK, STRIDE, BLOCKS, CHUNK = 16, 64, 64, 50


class Machine:
    """The least engine there can be: chunks of prompts, and greedy decoding."""

    def __init__(self, path: Path, fmt: str = "none") -> None:
        self.model: PagedModel = load_model(path, CPU)
        self.theirs: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
        self.theirs.generation_config.eos_token_id = None
        shape = self.model.spec.kv_shape(BLOCK)
        self.kv: list[LayerKV] = by_name(fmt).allocate(shape, BLOCKS, CPU, torch.float32)
        self.manager = KVManager(BLOCKS, BLOCK, STRIDE, KvEvents(nullcontext()))

    def open(self, ids: Sequence[int], new: int) -> tuple[Tokens, SequenceKV]:
        tokens = Tokens(NamespaceSeed(1), STRIDE)
        tokens.extend(pack_tokens(ids))
        kv = self.manager.open(tokens, len(ids) + new)
        assert kv
        return tokens, kv

    def step(self, rows: list[tuple[Tokens, SequenceKV, int]]) -> Tensor:
        """Bring each sequence to `stop` computed tokens; logits of each one's last."""
        ids, positions, slots, starts = list[int](), list[int](), list[int](), [0]
        for tokens, kv, stop in rows:
            start = min(kv.stored, stop - 1)
            ids += tokens.ids(start, stop)
            positions += range(start, stop)
            slots += [
                kv.blocks[p // BLOCK] * BLOCK + p % BLOCK if p >= kv.stored else -1
                for p in range(start, stop)
            ]
            starts.append(len(ids))
        most = max(len(kv.blocks) for _, kv, _ in rows)
        tables = [[*kv.blocks, *[0] * (most - len(kv.blocks))] for _, kv, _ in rows]
        batch = PagedBatch(
            token_ids=torch.tensor(ids),
            positions=torch.tensor(positions),
            slots=torch.tensor(slots),
            block_tables=torch.tensor(tables),
            query_starts=torch.tensor(starts),
            context_lengths=torch.tensor([stop for _, _, stop in rows]),
            sample_rows=torch.tensor(starts[1:]) - 1,
        )
        logits = self.model.forward(batch, self.kv)
        for tokens, kv, stop in rows:
            self.manager.commit(kv, tokens, stop)
        self.manager.check_integrity()
        return logits

    def greedy(self, ids: Sequence[int], new: int) -> tuple[list[int], int]:
        """`new` greedy tokens, and how many of the prompt were cached."""
        tokens, kv = self.open(ids, new)
        while True:
            stop = min(len(tokens), kv.stored + CHUNK)
            logits = self.step([(tokens, kv, stop)])
            if stop < len(tokens):
                continue
            tokens.append(int(logits[0].argmax()))
            if len(tokens) == len(ids) + new:
                break
            assert self.manager.grow(kv, len(tokens))
        self.manager.close(kv)
        return tokens.ids(len(ids)), kv.cached

    def their_greedy(self, ids: Sequence[int], new: int) -> list[int]:
        output = self.theirs.generate(torch.tensor([ids]), max_new_tokens=new, do_sample=False)
        return list(output[0, len(ids) :].tolist())

    def their_logits(self, ids: Sequence[int]) -> Tensor:
        with torch.inference_mode():
            logits: Tensor = self.theirs(torch.tensor([ids]), use_cache=False).logits[0]
        return logits


@pytest.fixture(params=["tiny_llama", "tiny_qwen3"])
def path(request: pytest.FixtureRequest) -> Path:
    return request.getfixturevalue(request.param)


def prompt(length: int, seed: int = 0) -> list[int]:
    rng = torch.Generator().manual_seed(seed)
    return torch.randint(3, 512, (length,), generator=rng).tolist()


@pytest.mark.parametrize("length", [1, 15, 16, 17, 64, 150])
def test_cold_warm_and_continued_answers_are_transformers_own(path: Path, length: int) -> None:
    machine, ids = Machine(path), prompt(length)
    expected = machine.their_greedy(ids, 20)
    assert machine.greedy(ids, 20) == (expected, 0)
    assert machine.greedy(ids, 20) == (expected, length // BLOCK * BLOCK)
    turn = [*ids, *expected[:-1], *prompt(9, seed=1)]
    answer, cached = machine.greedy(turn, 20)
    assert answer == machine.their_greedy(turn, 20)
    assert cached == (length + 19) // BLOCK * BLOCK


def test_a_mixed_batch_gives_each_sequence_its_own_logits(path: Path) -> None:
    machine = Machine(path)
    prompts = [prompt(length, seed=length) for length in (40, 7, 90)]
    opened = [machine.open(ids, 4) for ids in prompts]
    machine.step([(*opened[0], 39)])
    machine.step([(*opened[0], 40), (*opened[1], 5)])
    logits = machine.step([(*opened[2], 33), (*opened[1], 7)])
    assert torch.allclose(logits[0], machine.their_logits(prompts[2])[32], atol=1e-4, rtol=1e-4)
    assert torch.allclose(logits[1], machine.their_logits(prompts[1])[6], atol=1e-4, rtol=1e-4)


def test_int8_stays_near(path: Path) -> None:
    machine, ids = Machine(path, "int8"), prompt(100)
    opened = machine.open(ids, 1)
    machine.step([(*opened, 70)])
    [logits] = machine.step([(*opened, 100)])
    expected = machine.their_logits(ids)[-1]
    assert torch.nn.functional.cosine_similarity(logits, expected, dim=0) > 0.99
    assert not torch.equal(logits, expected)


def test_a_step_that_samples_nothing_gives_no_rows(path: Path) -> None:
    machine = Machine(path)
    none = torch.zeros(0, dtype=torch.int64)
    batch = PagedBatch(
        token_ids=torch.tensor([5]),
        positions=torch.tensor([0]),
        slots=torch.tensor([0]),
        block_tables=torch.tensor([[0]]),
        query_starts=torch.tensor([0, 1]),
        context_lengths=torch.tensor([1]),
        sample_rows=none,
    )
    assert machine.model.forward(batch, machine.kv).shape == (0, 512)
