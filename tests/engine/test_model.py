"""Real models: cold, warm, chunked and preempted runs give the tokens of transformers.generate."""

from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from tests.engine.toys import Bench, request
from worker.kv.events import KvEvents
from worker.kv.format import by_name
from worker.kv.manager import KVManager
from worker.model.loader import load_model

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
BLOCK, STRIDE = 16, 64


def bench(directory: Path, num_blocks: int, kv_format: str = "none", **limits: int) -> Bench:
    model = load_model(directory, CPU)
    layers = by_name(kv_format).allocate(model.spec.kv_shape(BLOCK), num_blocks, CPU, model.dtype)
    return Bench(
        forward=partial(model.forward, kv=layers),
        kv=KVManager(num_blocks, BLOCK, STRIDE, KvEvents(nullcontext())),
        tokenizer=Tokenizer.from_file(str(directory / "tokenizer.json")),
        stride=STRIDE,
        **limits,
    )


def generate(directory: Path, prompt: list[int], count: int) -> list[int]:
    model = AutoModelForCausalLM.from_pretrained(directory)
    model.generation_config.eos_token_id = None
    ids = torch.tensor([prompt])
    output = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False
    )
    return output[0, len(prompt) :].tolist()


def prompt(length: int, seed: int) -> list[int]:
    numbers = torch.Generator().manual_seed(seed)
    return torch.randint(3, 512, (length,), generator=numbers).tolist()


@pytest.fixture(params=["tiny_llama", "tiny_qwen3"])
def directory(request: pytest.FixtureRequest) -> Path:
    return request.getfixturevalue(request.param)


def test_cold_and_warm_runs_equal_transformers(directory: Path) -> None:
    shared = prompt(150, seed=1)
    prompts = [shared, shared + prompt(30, seed=2), shared[:128], prompt(90, seed=3)]
    answers = [generate(directory, each, 24) for each in prompts]
    assert len({tuple(answer) for answer in answers}) > 1

    cold = bench(directory, num_blocks=64, max_running=1, token_budget=40)
    warm = bench(directory, num_blocks=64, max_running=8, token_budget=64)
    for each, answer in zip(prompts, answers, strict=True):
        ticket = cold.add(request(each, max_tokens=24))
        cold.run()
        assert cold.output(ticket) == answer
    for _ in range(2):
        tickets = [warm.add(request(each, max_tokens=24)) for each in prompts]
        warm.run()
        assert [warm.output(ticket) for ticket in tickets] == answers
    assert warm.finished(tickets[2]).cached_tokens == 128  # the whole prompt


def test_preempted_runs_equal_transformers(directory: Path) -> None:
    prompts = [prompt(60, seed) for seed in range(3)]
    answers = [generate(directory, each, 40) for each in prompts]
    tight = bench(directory, num_blocks=14, max_running=8, token_budget=64)
    tickets = [tight.add(request(each, max_tokens=40)) for each in prompts]
    tight.run()
    assert [tight.output(ticket) for ticket in tickets] == answers
    assert tight.metric("preemptions_total") > 0
    assert tight.core.load().kv.running_blocks == 0


def test_int8_runs_give_whole_answers(directory: Path) -> None:
    quantized = bench(directory, num_blocks=32, kv_format="int8")
    tickets = [quantized.add(request(prompt(100, seed=4), max_tokens=20)) for _ in range(2)]
    quantized.run()
    first, second = (quantized.output(ticket) for ticket in tickets)
    assert len(first) == 20
    assert first == second
