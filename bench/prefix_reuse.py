"""What a cache hit is worth: TTFT of a prompt sent cold, then warm, to a gateway and two workers.

    make bench

Each round sends one new prompt of random tokens twice. Cold and warm are measured in one round, so
their ratio holds on a noisy machine; medians over all rounds. Prints JSON with the raw numbers.
"""

import json
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from radixgate.client import Client

from tests.e2e.processes import Fleet, free_port, wait_until
from worker.model.pull import DEFAULT_MODEL, pull

PROMPT_TOKENS = 600
OUTPUT_TOKENS = 8
ROUNDS = 9
REPORT_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Measurement:
    """One request as its client saw it."""

    ttft_seconds: float
    total_seconds: float
    worker: str
    cached_tokens: int
    output: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """The same prompt sent when no worker had seen it, and again."""

    cold: Measurement
    warm: Measurement


def measure(client: Client, prompt: list[int]) -> Measurement:
    begin = time.perf_counter()
    stream = client.generate(prompt, max_tokens=OUTPUT_TOKENS, temperature=0, ignore_eos=True)
    first = next(stream)
    ttft = time.perf_counter() - begin
    rest = stream.result()
    total = time.perf_counter() - begin
    started = rest.started
    return Measurement(ttft, total, started.worker, started.cached_tokens, first.ids + rest.ids)


def run_rounds(client: Client, vocab: int) -> list[Round]:
    """`ROUNDS` rounds, after one that is not counted."""
    rng = random.Random(1)
    rounds = []
    for _ in range(ROUNDS + 1):
        prompt = [rng.randrange(vocab) for _ in range(PROMPT_TOKENS)]
        cold = measure(client, prompt)
        time.sleep(REPORT_SECONDS)
        rounds.append(Round(cold, measure(client, prompt)))
    return rounds[1:]


def main() -> None:
    model = pull(DEFAULT_MODEL)
    vocab = json.loads((model / "config.json").read_text())["vocab_size"]
    with tempfile.TemporaryDirectory() as directory:
        fleet = Fleet(Path(directory))
        try:
            port = free_port()
            fleet.gateway(port).start()
            for name in ("one", "two"):
                fleet.worker(name, model, [port]).start()
            with Client(f"127.0.0.1:{port}") as client:
                wait_until(lambda: len(client.workers()) == 2, 10, "both workers are known")
                rounds = run_rounds(client, vocab)
        finally:
            fleet.stop()
    summary = {
        "model": model.name,
        "prompt_tokens": PROMPT_TOKENS,
        "rounds": len(rounds),
        "cold_ttft_seconds": median(each.cold.ttft_seconds for each in rounds),
        "warm_ttft_seconds": median(each.warm.ttft_seconds for each in rounds),
        "warm_over_cold": median(
            each.warm.ttft_seconds / each.cold.ttft_seconds for each in rounds
        ),
        "cached_share": median(each.warm.cached_tokens / PROMPT_TOKENS for each in rounds),
        "same_worker": sum(each.cold.worker == each.warm.worker for each in rounds),
        "equal_output": sum(each.cold.output == each.warm.output for each in rounds),
        "raw": [asdict(each) for each in rounds],
    }
    json.dump(summary, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
