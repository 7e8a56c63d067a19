"""The main promise, with a real model: an equal prompt comes from the cache, with equal tokens."""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from radixgate.client import Client
from radixgate.stream import Completion
from transformers import AutoModelForCausalLM

from tests.e2e.processes import Fleet, free_port, wait_until

pytestmark = pytest.mark.slow

VOCAB = 49152


def random_prompt(seed: int, length: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(VOCAB) for _ in range(length)]


def greedy(model: Path, prompt: list[int], length: int) -> tuple[int, ...]:
    """What transformers itself generates."""
    reference = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    ids = torch.tensor([prompt])
    output = reference.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        min_new_tokens=length,
        max_new_tokens=length,
    )
    return tuple(output[0, len(prompt) :].tolist())


def ask(client: Client, prompt: list[int], length: int) -> Completion:
    stream = client.generate(prompt, temperature=0, max_tokens=length, ignore_eos=True, timeout=100)
    return stream.result()


def test_the_second_of_two_equal_prompts_goes_to_the_same_worker_and_is_cached(
    fleet: Fleet, smollm2: Path
) -> None:
    port = free_port()
    fleet.gateway(port).start()
    workers = [fleet.worker(name, smollm2, [port]) for name in ("a", "b")]
    for worker in workers:
        worker.launch()
    with Client(f"127.0.0.1:{port}") as client:
        for worker in workers:
            worker.wait_ready()
        wait_until(lambda: len(client.workers()) == 2, 10, "both workers are known")
        prompt = random_prompt(1, 600)
        cold = ask(client, prompt, 16)
        wait_until(
            lambda: client.explain(prompt).candidates[0].matched_tokens >= 576,
            5,
            "the gateway knows what the worker holds",
        )
        warm = ask(client, prompt, 16)
    assert cold.started.cached_tokens == 0
    assert warm.started.worker == cold.started.worker
    assert warm.started.cached_tokens >= 0.9 * len(prompt)
    assert warm.started.predicted_tokens == 576
    assert cold.ids == warm.ids == greedy(smollm2, prompt, 16)


def test_a_preempted_answer_is_the_answer_it_would_have_been(fleet: Fleet, smollm2: Path) -> None:
    port = free_port()
    fleet.gateway(port).start()
    # Room for 400 tokens, where two answers of 240 each come at once.
    fleet.worker("a", smollm2, [port], "--kv-memory", "18MiB").start()
    prompts = [random_prompt(seed, 140) for seed in (2, 3)]
    with Client(f"127.0.0.1:{port}") as client, ThreadPoolExecutor() as threads:
        wait_until(client.workers, 10, "the worker is known")
        answers = list(threads.map(lambda prompt: ask(client, prompt, 100), prompts))
    assert sum(answer.finished.preemptions for answer in answers) > 0
    for prompt, answer in zip(prompts, answers, strict=True):
        assert answer.ids == greedy(smollm2, prompt, 100)
        assert answer.finished.cached_tokens == 0, "a hit was counted again after preemption"


def test_a_chat_knows_the_capital_of_france(fleet: Fleet, smollm2: Path) -> None:
    port = free_port()
    fleet.gateway(port).start()
    fleet.worker("a", smollm2, [port]).start()
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    with Client(f"127.0.0.1:{port}") as client:
        wait_until(client.workers, 10, "the worker is known")
        first = client.chat(messages, temperature=0, max_tokens=40, timeout=100).result()
        messages += [
            {"role": "assistant", "content": first.text},
            {"role": "user", "content": "And of Italy?"},
        ]
        second = client.chat(messages, temperature=0, max_tokens=40, timeout=100).result()
    assert "Paris" in first.text
    assert "Rome" in second.text
    assert second.started.cached_tokens > 0, "the history of a chat is not cached"
