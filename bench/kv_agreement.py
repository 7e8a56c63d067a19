"""What a KV format changes in the answers: greedy tokens in each format against those in `none`.

    python -m bench.kv_agreement [FORMAT[,LAYERS:FORMAT] ...]

Each of 40 short prompts gets up to 32 greedy tokens. One early difference changes all that follows,
so there are three figures: how many answers are equal from the first token to the last; how many
of all their tokens come before the first difference; and, when the answers of `none` are read in
the other format, how many of their tokens it would have chosen too. How close the choices of `none`
were is told as well, in logits from the first choice to the second. Prints JSON.
"""

import json
import sys
from itertools import chain
from operator import eq
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer

from worker.attention.base import PagedBatch
from worker.kv.format import KVFormat, by_name
from worker.model.loader import load_model
from worker.model.paged import PagedModel
from worker.model.pull import DEFAULT_MODEL, pull

FORMATS = ("int8", "fp8", "int4", "k8v4", "int4,0-1,28-29:int8")
NEW_TOKENS = 32
BLOCK_SIZE = 16
BLOCKS_EACH = 8
PROMPTS = Path(__file__).with_name("prompts.txt")

Texts = list[list[int]]


class Reader:
    """Reads texts side by side, each in its own blocks."""

    def __init__(self, model: PagedModel, kv_format: KVFormat, texts: int) -> None:
        self._model = model
        shape, blocks = model.spec.kv_shape(BLOCK_SIZE), texts * BLOCKS_EACH
        self._kv = kv_format.allocate(shape, blocks, model.device, model.dtype)
        self._tables = torch.arange(blocks).view(texts, BLOCKS_EACH)

    def choices(self, texts: Texts, read: list[int], last: list[int]) -> Texts:
        """Read on in `texts`, of which `read` tokens are; what would follow the `last` tokens."""
        return [logits.argmax(dim=-1).tolist() for logits in self.logits(texts, read, last)]

    def logits(self, texts: Texts, read: list[int], last: list[int]) -> tuple[Tensor, ...]:
        """As `choices`, the logits [last, vocab] of each."""
        rest = [text[start:] for text, start in zip(texts, read, strict=True)]
        spans = [torch.arange(start, len(text)) for text, start in zip(texts, read, strict=True)]
        slots = [
            table[span // BLOCK_SIZE] * BLOCK_SIZE + span % BLOCK_SIZE
            for table, span in zip(self._tables, spans, strict=True)
        ]
        ends = torch.tensor([len(tokens) for tokens in rest]).cumsum(0).tolist()
        batch = PagedBatch(
            token_ids=torch.tensor([token for tokens in rest for token in tokens]),
            positions=torch.cat(spans),
            slots=torch.cat(slots),
            block_tables=self._tables,
            query_starts=torch.tensor([0, *ends]),
            context_lengths=torch.tensor([len(text) for text in texts]),
            sample_rows=torch.cat(
                [torch.arange(end - count, end) for end, count in zip(ends, last, strict=True)]
            ),
        )
        return torch.split(self._model.forward(batch, self._kv), last)


def answers(reader: Reader, prompts: Texts, ends: frozenset[int]) -> Texts:
    """The greedy answer to each prompt, up to the first token that ends it."""
    texts, read = [list(prompt) for prompt in prompts], [0] * len(prompts)
    for _ in range(NEW_TOKENS):
        chosen = reader.choices(texts, read, [1] * len(texts))
        read = [len(text) for text in texts]
        for text, [token] in zip(texts, chosen, strict=True):
            text.append(token)
    return [_until(text[len(prompt) :], ends) for text, prompt in zip(texts, prompts, strict=True)]


def follow(reader: Reader, prompts: Texts, given: Texts) -> tuple[Tensor, ...]:
    """The logits [tokens, vocab] by which each of the answers `given` would be chosen."""
    texts = [[*prompt, *answer[:-1]] for prompt, answer in zip(prompts, given, strict=True)]
    return reader.logits(texts, [0] * len(texts), [len(answer) for answer in given])


def leads(reader: Reader, prompts: Texts, given: Texts) -> list[float]:
    """By how much the closest choice of each answer was ahead of the next best, least first."""
    tops = (logits.topk(2).values for logits in follow(reader, prompts, given))
    return sorted(float((top[:, 0] - top[:, 1]).min()) for top in tops)


def same_start(ours: list[int], theirs: list[int]) -> int:
    """Tokens before the first difference."""
    pairs = enumerate(zip(ours, theirs, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(ours), len(theirs)))


def agreement(model: PagedModel, kv_format: KVFormat, prompts: Texts, expected: Texts) -> Any:
    """How far the answers of a model with its KV in one format are the `expected` ones."""
    reader = Reader(model, kv_format, len(prompts))
    own = answers(reader, prompts, model.spec.eos_token_ids)
    differing = [at for at, answer in enumerate(own) if answer != expected[at]]
    tokens = sum(len(answer) for answer in expected)
    chosen = torch.cat(follow(reader, prompts, expected)).argmax(dim=-1).tolist()
    equal = sum(map(eq, chosen, chain.from_iterable(expected)))
    return {
        "equal_answers": len(prompts) - len(differing),
        "equal_tokens": sum(map(same_start, own, expected)) / tokens,
        "equal_next_tokens": equal / tokens,
        "differing_answers": differing,
    }


def compare(model: PagedModel, kv_format: KVFormat, prompts: Texts, expected: Texts) -> Any:
    """One format against the answers of `none`."""
    bits = kv_format.bits_per_element(model.spec.kv_shape(BLOCK_SIZE), model.dtype)
    return {"bits_per_element": bits} | agreement(model, kv_format, prompts, expected)


def read_prompts(model: Path) -> Texts:
    """Token ids of the questions in `PROMPTS`, each as a chat of the model."""
    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    chats = [[{"role": "user", "content": line}] for line in PROMPTS.read_text().splitlines()]
    prompts: Texts = tokenizer.apply_chat_template(
        chats, add_generation_prompt=True, return_dict=False
    )
    return prompts


def main() -> None:
    formats = {name: by_name(*name.split(",", 1)) for name in sys.argv[1:] or FORMATS}
    directory = pull(DEFAULT_MODEL)
    model = load_model(directory, torch.device("cpu"))
    prompts = read_prompts(directory)
    exact = Reader(model, by_name("none"), len(prompts))
    expected = answers(exact, prompts, model.spec.eos_token_ids)
    result = {
        "model": directory.name,
        "prompts": len(prompts),
        "most_new_tokens": NEW_TOKENS,
        "closest_choices_of_none": leads(exact, prompts, expected),
        "formats": {
            name: compare(model, each, prompts, expected) for name, each in formats.items()
        },
    }
    json.dump(result, sys.stdout, indent=2)
    print()


def _until(tokens: list[int], ends: frozenset[int]) -> list[int]:
    """`tokens` up to the first of `ends`, which is kept."""
    last = next((at for at, token in enumerate(tokens) if token in ends), len(tokens))
    return tokens[: last + 1]


if __name__ == "__main__":
    main()
