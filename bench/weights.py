"""What `--weights int8` changes: the answers, the memory, and the time of a step on a CPU.

    python -m bench.weights [--rounds N] [--threads N] [--no-answers]

The answers are compared as `bench.kv_agreement` does, int8 weights to float32 ones, both with exact
KV. Steps of both take turns; a time is the median over the rounds. Prints JSON.
"""

from worker.threads import share_cores

share_cores()

import argparse  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from statistics import median  # noqa: E402
from typing import Any, NamedTuple  # noqa: E402

import torch  # noqa: E402

from bench.kv_agreement import Reader, Texts, agreement, answers, read_prompts  # noqa: E402
from worker.attention.base import PagedBatch  # noqa: E402
from worker.kv.format import LayerKV, by_name  # noqa: E402
from worker.model.compiled import CompiledModel  # noqa: E402
from worker.model.loader import load_model  # noqa: E402
from worker.model.paged import PagedModel  # noqa: E402
from worker.model.pull import DEFAULT_MODEL, pull  # noqa: E402
from worker.model.weights import WeightFormat  # noqa: E402

BLOCK = 16
EXACT = by_name("none")


class Step(NamedTuple):
    """A step of `sequences`, each with `new` tokens, the last of its `context`."""

    sequences: int
    new: int
    context: int

    @property
    def name(self) -> str:
        """What it is called in the report."""
        kind = "decode" if self.new == 1 else f"prefill {self.new}"
        return f"{kind}, {self.sequences} x {self.context}"

    def batch(self, vocab: int) -> PagedBatch:
        """Of random tokens, over blocks in order."""
        blocks = -(-self.context // BLOCK)
        positions = torch.arange(self.context - self.new, self.context)
        starts = torch.arange(self.sequences)
        return PagedBatch(
            token_ids=torch.randint(vocab, (self.sequences * self.new,)),
            positions=positions.repeat(self.sequences),
            slots=(starts[:, None] * blocks * BLOCK + positions).flatten(),
            block_tables=torch.arange(self.sequences * blocks).view(self.sequences, blocks),
            query_starts=torch.arange(self.sequences + 1) * self.new,
            context_lengths=torch.full((self.sequences,), self.context),
            sample_rows=starts * self.new + self.new - 1,
        )


STEPS = (Step(1, 1, 512), Step(2, 1, 512), Step(4, 1, 512), Step(8, 1, 512), Step(1, 256, 256))


def measure(models: dict[WeightFormat, PagedModel], step: Step, rounds: int) -> Any:
    """The milliseconds of a step with each kind of weights."""
    spec = models[WeightFormat.FLOAT32].spec
    batch = step.batch(spec.vocab_size)
    blocks = batch.block_tables.numel()
    kv: list[LayerKV] = EXACT.allocate(
        spec.kv_shape(BLOCK), blocks, torch.device("cpu"), torch.float32
    )
    raw: dict[WeightFormat, list[float]] = {weights: [] for weights in models}
    for _ in range(1 + rounds):
        for weights, model in models.items():
            began = time.perf_counter()
            model.forward(batch, kv)
            raw[weights].append((time.perf_counter() - began) * 1000)
    times = {weights: median(taken[1:]) for weights, taken in raw.items()}
    ratio = times[WeightFormat.FLOAT32] / times[WeightFormat.INT8]
    return {"step": step.name, "ms": times, "times_as_fast": ratio, "raw_ms": raw}


def compare(models: dict[WeightFormat, PagedModel], prompts: Texts) -> Any:
    """The answers with int8 weights against those with float32 ones."""
    exact, rounded = models[WeightFormat.FLOAT32], models[WeightFormat.INT8]
    expected = answers(Reader(exact, EXACT, len(prompts)), prompts, exact.spec.eos_token_ids)
    return {"prompts": len(prompts)} | agreement(rounded, EXACT, prompts, expected)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--no-answers", action="store_true", help="measure memory and steps alone")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    directory = pull(DEFAULT_MODEL)
    models = {
        weights: load_model(directory, torch.device("cpu"), weights=weights)
        for weights in WeightFormat
    }
    result = {
        "model": directory.name,
        "threads": arguments.threads,
        "weight_bytes": {
            weights: model.weight_bytes
            for weights, model in models.items()
            if isinstance(model, CompiledModel)
        },
        "answers": None if arguments.no_answers else compare(models, read_prompts(directory)),
        "steps": [measure(models, step, arguments.rounds) for step in STEPS],
    }
    json.dump(result, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
