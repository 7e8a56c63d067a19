"""What a KV format is worth: chats that share a system prompt, at one fixed budget of KV bytes.

    make bench-kv

One worker a format, all behind one gateway. Chats take turns in random order; all of them together
are more than `none` holds, and more than `int8` holds. A request is sent to each worker in turn, so
that noise meets all formats alike. Prints JSON with the raw numbers, and draws docs/kv_formats.svg.
"""

import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median

from radixgate.client import Client

from cli.bars import Bar, Panel, bar_chart
from tests.e2e.processes import Fleet, free_port, wait_until
from worker.model.pull import DEFAULT_MODEL, pull

FORMATS = ("none", "int8", "int4")
KV_MIB = 32
ROUNDS = 3
CHATS = 12
TURNS = 3
SYSTEM_TOKENS = 256
QUESTION_TOKENS = 88
ANSWER_TOKENS = 8
PLOT = Path(__file__).parent.parent / "docs" / "kv_formats.svg"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One turn of a chat as its client saw it."""

    ttft_seconds: float
    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Result:
    """A format, over all turns of each round.

    Attributes:
        capacity_tokens: that the budget holds.
        cached_tokens: of the prompts of a round, the median.
        mean_ttft_seconds: of a round, the median.
        ttft_over_none: mean TTFT over that of `none` in the same round, the median.
    """

    capacity_tokens: int
    prompt_tokens: int
    cached_tokens: float
    cached_share: float
    mean_ttft_seconds: float
    ttft_over_none: float


Round = dict[str, list[Measurement]]


def ask(client: Client, model: str, prompt: list[int]) -> tuple[Measurement, list[int]]:
    """Send a prompt to the worker that serves `model`; what came of it, and the answer."""
    begin = time.perf_counter()
    stream = client.generate(
        prompt, model=model, max_tokens=ANSWER_TOKENS, temperature=0, ignore_eos=True
    )
    first = next(stream)
    ttft = time.perf_counter() - begin
    rest = stream.result()
    measured = Measurement(ttft, len(prompt), rest.started.cached_tokens)
    return measured, [*first.ids, *rest.ids]


def turns(rng: random.Random) -> Iterator[int]:
    """Which chat speaks next: each once in each turn, in an order that nobody can foresee."""
    for _ in range(TURNS):
        yield from rng.sample(range(CHATS), CHATS)


def run_round(client: Client, vocab: int, rng: random.Random) -> Round:
    """Every chat from its first to its last turn, on every worker; answers stay in the history."""

    def some_tokens(count: int) -> list[int]:
        return [rng.randrange(vocab) for _ in range(count)]

    system = some_tokens(SYSTEM_TOKENS)
    histories = {name: [list(system) for _ in range(CHATS)] for name in FORMATS}
    measured: Round = {name: [] for name in FORMATS}
    for chat in turns(rng):
        question = some_tokens(QUESTION_TOKENS)
        for name in rng.sample(FORMATS, len(FORMATS)):
            history = histories[name][chat]
            history += question
            measurement, answer = ask(client, name, history)
            history += answer
            measured[name].append(measurement)
    return measured


def summarize(name: str, rounds: list[Round], capacity_tokens: int) -> Result:
    prompt_tokens = sum(turn.prompt_tokens for turn in rounds[0][name])
    cached_tokens = median(sum(turn.cached_tokens for turn in each[name]) for each in rounds)
    return Result(
        capacity_tokens=capacity_tokens,
        prompt_tokens=prompt_tokens,
        cached_tokens=cached_tokens,
        cached_share=cached_tokens / prompt_tokens,
        mean_ttft_seconds=median(_mean_ttft(each[name]) for each in rounds),
        ttft_over_none=median(_mean_ttft(each[name]) / _mean_ttft(each["none"]) for each in rounds),
    )


def _mean_ttft(turns: list[Measurement]) -> float:
    return mean(turn.ttft_seconds for turn in turns)


def draw(results: dict[str, Result]) -> str:
    """The results as SVG."""
    holds, cached, ttft = [], [], []
    for name, result in results.items():
        share = f"{result.cached_tokens:,.0f} tokens, {result.cached_share:.0%}"
        holds.append(Bar(name, result.capacity_tokens, f"{result.capacity_tokens:,} tokens"))
        cached.append(Bar(name, result.cached_tokens, share))
        ttft.append(Bar(name, result.mean_ttft_seconds, f"{result.mean_ttft_seconds:.2f} s"))
    total = next(iter(results.values())).prompt_tokens
    return bar_chart(
        f"{CHATS} chats of {TURNS} turns that share a system prompt, {KV_MIB} MiB of KV",
        [
            Panel("tokens that fit", holds),
            Panel(f"cached, of {total:,} prompt tokens", cached),
            Panel("mean time to first token", ttft),
        ],
    )


def main() -> None:
    model = pull(DEFAULT_MODEL)
    vocab = json.loads((model / "config.json").read_text())["vocab_size"]
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as directory:
        fleet = Fleet(Path(directory))
        try:
            port = free_port()
            fleet.gateway(port).start()
            for name in FORMATS:
                options = ("--kv-format", name, "--kv-memory", f"{KV_MIB}MiB", "--model-name", name)
                fleet.worker(name, model, [port], *options).start()
            with Client(f"127.0.0.1:{port}") as client:
                wait_until(
                    lambda: (
                        sum(worker.load.total_blocks > 0 for worker in client.workers())
                        == len(FORMATS)
                    ),
                    10,
                    "all workers are known",
                )
                block_size = client.models()[0].block_size
                capacity = {
                    worker.model: worker.load.total_blocks * block_size
                    for worker in client.workers()
                }
                for name in FORMATS:
                    ask(client, name, [rng.randrange(vocab) for _ in range(SYSTEM_TOKENS)])
                rounds = []
                for index in range(ROUNDS):
                    print(f"round {index + 1} of {ROUNDS}", file=sys.stderr, flush=True)
                    rounds.append(run_round(client, vocab, rng))
        finally:
            fleet.stop()
    results = {name: summarize(name, rounds, capacity[name]) for name in FORMATS}
    PLOT.write_text(draw(results), encoding="utf-8")
    summary = {
        "model": model.name,
        "kv_bytes": KV_MIB * 2**20,
        "rounds": ROUNDS,
        "formats": {name: asdict(result) for name, result in results.items()},
        "raw": [
            {name: [asdict(turn) for turn in turns] for name, turns in each.items()}
            for each in rounds
        ],
    }
    json.dump(summary, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
