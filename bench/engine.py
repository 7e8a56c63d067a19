"""How fast the whole engine is beside transformers and llama.cpp: one model, fp32.

    make bench-engine

All sides of a case take turns, so their ratio holds on a noisy machine; medians over all rounds,
after one that is not counted. Above 1, Radixgate is faster. Prints JSON with the raw seconds.
llama.cpp takes part if `llama-cpp-python` is installed: with weights in float32, and in Q8_0.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from worker.threads import share_cores

share_cores()

import torch  # noqa: E402
from prometheus_client import CollectorRegistry  # noqa: E402
from radixgate.namespace import NamespaceSeed  # noqa: E402
from radixgate.prefix import pack_tokens  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402
from torch import Tensor  # noqa: E402
from transformers import AutoModelForCausalLM, DynamicCache  # noqa: E402

from bench.llama.client import Llama, llamas  # noqa: E402
from worker.attention.base import PagedBatch  # noqa: E402
from worker.engine.core import EngineConfig, EngineCore  # noqa: E402
from worker.engine.events import Output  # noqa: E402
from worker.engine.metrics import EngineMetrics  # noqa: E402
from worker.engine.request import Request  # noqa: E402
from worker.kv.events import KvEvents  # noqa: E402
from worker.kv.format import by_name  # noqa: E402
from worker.kv.manager import KVManager  # noqa: E402
from worker.model.loader import load_model  # noqa: E402
from worker.model.pull import DEFAULT_MODEL, pull  # noqa: E402
from worker.model.weights import WeightFormat  # noqa: E402

CPU = torch.device("cpu")
BLOCK, STRIDE, BLOCKS, TOKEN_BUDGET = 16, 64, 768, 256
DECODED = 12
CHATS, PREFIX, OWN, ANSWER = 8, 512, 64, 16
CROWD, CROWD_TOKENS = 64, 2048
LONGEST = 2048
TEXT, TEXT_TOKENS = "1, 2, 3, 4,", 16

Prompt = list[int]


class Ours:
    """An engine driven step by step.

    Args:
        forward: the model over its KV memory.
        num_blocks: of that memory.
        tokenizer: of the model.
        token_budget: of a step.
    """

    def __init__(
        self,
        forward: Callable[[PagedBatch], Tensor],
        num_blocks: int,
        tokenizer: Tokenizer,
        token_budget: int = TOKEN_BUDGET,
    ) -> None:
        self._tickets = 0
        self.core = EngineCore(
            forward,
            KVManager(num_blocks, BLOCK, STRIDE, KvEvents(nullcontext())),
            tokenizer=tokenizer,
            config=EngineConfig(STRIDE, CROWD, token_budget, chunk_seconds=1e9),
            metrics=EngineMetrics(CollectorRegistry(), 1),
            clock=time.perf_counter,
            device=CPU,
        )

    def generate(self, prompts: list[Prompt], new: int) -> tuple[float, float]:
        """Seconds until each prompt has its first token, and from there to the end."""
        began = time.perf_counter()
        for prompt in prompts:
            self._tickets += 1
            request = Request("bench", NamespaceSeed(1), pack_tokens(prompt), new)
            self.core.add(self._tickets, request, began)
        started: set[int] = set()
        first = None
        while not self.core.idle:
            started |= {ticket for ticket, event in self.core.step() if isinstance(event, Output)}
            if first is None and len(started) == len(prompts):
                first = time.perf_counter()
        assert first
        return first - began, time.perf_counter() - first

    def greedy(self, prompt: Prompt, new: int) -> list[int]:
        """The answer to a prompt."""
        self.core.add(0, Request("bench", NamespaceSeed(1), pack_tokens(prompt), new), 0.0)
        answer = []
        while not self.core.idle:
            answer += [event.token for _, event in self.core.step() if isinstance(event, Output)]
        return answer


class Theirs:
    """The same model as transformers runs it."""

    def __init__(self, model: Any) -> None:
        self._model = model
        model.generation_config.eos_token_id = None
        self._caches: dict[tuple[int, int], DynamicCache] = {}

    @torch.inference_mode()
    def prefill(self, prompts: list[Prompt], cache: DynamicCache) -> float:
        """Seconds until each prompt, all of one length, has its first token."""
        began = time.perf_counter()
        self._model(torch.tensor(prompts), cache=cache, logits_to_keep=1)
        return time.perf_counter() - began

    @torch.inference_mode()
    def decode(self, batch: int, depth: int) -> float:
        """Seconds of `DECODED` steps after `depth` tokens."""
        if (batch, depth) not in self._caches:
            self._caches[batch, depth] = DynamicCache(config=self._model.config)
            self.prefill([[7] * depth] * batch, self._caches[batch, depth])
        cache = self._caches[batch, depth]
        if grown := cache.get_seq_length() - depth:
            cache.crop(-grown)
        ids = torch.full((batch, 1), 7)
        began = time.perf_counter()
        for _ in range(DECODED):
            ids = self._model(ids, cache=cache, logits_to_keep=1).logits[:, -1:].argmax(-1)
        return time.perf_counter() - began

    def generate(self, prompts: list[Prompt], new: int) -> float:
        """Seconds of a greedy answer to each prompt, all of one length."""
        ids = torch.tensor(prompts)
        began = time.perf_counter()
        self._model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False
        )
        return time.perf_counter() - began


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to do on all sides; each returns seconds for the same `tokens`."""

    name: str
    tokens: int
    ours: Callable[[], float]
    theirs: Callable[[], float]
    llama: Callable[[Llama], float] | None = None


def cases(ours: Ours, theirs: Theirs, vocab: int) -> list[Case]:
    rng = random.Random(1)

    def new(length: int) -> Prompt:
        return [rng.randrange(vocab) for _ in range(length)]

    def prefill(length: int) -> Case:
        return Case(
            f"prefill of {length}",
            length,
            lambda: ours.generate([new(length)], 1)[0],
            lambda: theirs.prefill([new(length)], DynamicCache()),
            lambda llama: llama.prefill(new(length)),
        )

    def decode(batch: int, depth: int) -> Case:
        prompts = [new(depth) for _ in range(batch)]
        return Case(
            f"decode of {batch} at {depth}",
            batch * DECODED,
            lambda: ours.generate(prompts, DECODED + 1)[1],
            lambda: theirs.decode(batch, depth),
            lambda llama: llama.decode(batch, depth, DECODED),
        )

    def chats() -> list[Prompt]:
        prefix = new(PREFIX)
        return [prefix + new(OWN) for _ in range(CHATS)]

    return [
        prefill(512),
        prefill(LONGEST),
        decode(1, 512),
        decode(1, LONGEST),
        decode(8, 512),
        Case(
            f"{CHATS} chats that share {PREFIX}",
            CHATS * ANSWER,
            lambda: sum(ours.generate(chats(), ANSWER)),
            lambda: theirs.generate(chats(), ANSWER),
        ),
    ]


def measure(case: Case, rounds: int, others: dict[str, Llama]) -> dict[str, Any]:
    sides = {"ours": case.ours, "transformers": case.theirs}
    if case.llama:
        sides |= {f"llama_{name}": partial(case.llama, llama) for name, llama in others.items()}
    raw = [{side: run() for side, run in sides.items()} for _ in range(rounds + 1)][1:]
    speeds = {
        f"{side}_tokens_per_second": case.tokens / median(seconds[side] for seconds in raw)
        for side in sides
    }
    ratios = {
        f"ratio_to_{side}": median(seconds[side] / seconds["ours"] for seconds in raw)
        for side in sides
        if side != "ours"
    }
    return {**speeds, **ratios, "raw_seconds": raw}


def warm_ttft(ours: Ours, vocab: int, rounds: int) -> dict[str, Any]:
    """First token of a cached 1k prompt, in decode steps that follow it."""
    rng = random.Random(2)
    prompt = [rng.randrange(vocab) for _ in range(1024)]
    raw = [ours.generate([prompt], DECODED + 1) for _ in range(rounds + 1)][1:]
    return {
        "steps": median(first / (rest / DECODED) for first, rest in raw),
        "raw_seconds": raw,
    }


def overhead(tokenizer: Tokenizer, vocab: int, rounds: int) -> dict[str, Any]:
    """Milliseconds of a step of a crowd that are not the model's."""
    logits = torch.randn(CROWD, vocab)
    steps = 32 * rounds
    ours = Ours(
        lambda batch: logits[: len(batch.sample_rows)],
        CROWD * (CROWD_TOKENS + steps + BLOCK) // BLOCK,
        tokenizer,
        token_budget=CROWD * CROWD_TOKENS,
    )
    for ticket in range(CROWD):
        prompt = pack_tokens([ticket] * CROWD_TOKENS)
        ours.core.add(ticket, Request("bench", NamespaceSeed(1), prompt, steps), 0.0)
    raw = []
    while not ours.core.idle:
        began = time.perf_counter()
        events = ours.core.step()
        ours.core.load()
        if all(isinstance(event, Output) for _, event in events):
            raw.append((time.perf_counter() - began) * 1000)
    return {
        "step_ms": median(raw),
        "best_tenth_ms": sorted(raw)[len(raw) // 10],
    }


def check_same(ours: Ours, llama: Llama, tokenizer: Tokenizer) -> None:
    """Refuse to compare with llama.cpp if it runs another model than we do.

    Raises:
        RuntimeError: its greedy answer to `TEXT` is not ours.
    """
    prompt = tokenizer.encode(TEXT).ids
    expected, found = ours.greedy(prompt, TEXT_TOKENS), llama.greedy(prompt, TEXT_TOKENS)
    if found != expected:
        raise RuntimeError(
            f"llama.cpp answers {tokenizer.decode(found)!r} to {TEXT!r}, where we answer "
            f"{tokenizer.decode(expected)!r}: its GGUF file is not this model"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--weights", type=WeightFormat, default=WeightFormat.FLOAT32, help="ours")
    parser.add_argument("--only", default="", help="measure the cases whose name has this in it")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rounds = arguments.rounds

    directory = pull(DEFAULT_MODEL)
    model = load_model(directory, CPU, weights=arguments.weights)
    spec = model.spec
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    kv = by_name("none").allocate(spec.kv_shape(BLOCK), BLOCKS, CPU, model.dtype)
    ours = Ours(partial(model.forward, kv=kv), BLOCKS, tokenizer)
    theirs = Theirs(AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32))
    with llamas(directory, arguments.threads, LONGEST + DECODED) as others:
        if others:
            check_same(ours, others["f32"], tokenizer)
        runs: dict[str, Callable[[], dict[str, Any]]] = {
            f"everything but the model, {CROWD} sequences of {CROWD_TOKENS} tokens": partial(
                overhead, tokenizer, spec.vocab_size, rounds
            ),
            "first token of a cached prompt of 1024, in decode steps": partial(
                warm_ttft, ours, spec.vocab_size, rounds
            ),
        }
        for case in cases(ours, theirs, spec.vocab_size):
            runs[case.name] = partial(measure, case, rounds, others)
        report = {
            "model": spec.name,
            "weights": arguments.weights,
            "threads": arguments.threads,
            "rounds": rounds,
            "results": [
                {"case": name, **run()} for name, run in runs.items() if arguments.only in name
            ],
        }
    json.dump(report, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
