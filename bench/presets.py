"""How far the presets of the simulator are from what others have measured and published.

    python -m bench.presets

Prints JSON: each published figure with its source, what the formula gives, and how much more that
is, in parts of the published one; and what each preset is. Measures nothing itself.
"""

import json
from dataclasses import asdict
from typing import Final, NamedTuple

from sim.hardware.presets import preset, preset_names
from sim.hardware.step_time import StepTime, StepWork
from worker.kv.format import NAMES

_VLLM: Final = "vLLM performance benchmark, buildkite build 9515"
_NIM_70B: Final = "NVIDIA NIM benchmarking guide, Llama-3.3-70b-instruct, version 1.8.0"


class _Case(NamedTuple):
    """A crowd of `streams` with prompts of the same length, and what was published of it."""

    source: str
    preset: str
    streams: int
    prompt_tokens: int
    output_tokens: int
    figure: str
    published: float


CASES: Final = (
    _Case(_NIM_70B, "h100x2-llama-70b-fp8", 1, 5000, 500, "TTFT", 0.40677),
    _Case(_NIM_70B, "h100x2-llama-70b-fp8", 1, 5000, 500, "ITL", 0.01858),
    _Case(_NIM_70B, "h100x2-llama-70b-fp8", 5, 5000, 500, "ITL", 0.02183),
    _Case(_NIM_70B, "h100x2-llama-70b-fp8", 25, 5000, 500, "ITL", 0.03875),
    _Case(_NIM_70B, "h100x2-llama-70b-fp8", 50, 5000, 500, "ITL", 0.05973),
    _Case(_VLLM, "h200-llama-8b", 8, 32, 128, "batch", 0.833421),
    _Case(_VLLM, "h200x4-llama-70b", 8, 32, 128, "batch", 2.07753),
)


def _formula(case: _Case) -> float:
    """Seconds of the figure."""
    step_time = preset(case.preset).step_time
    prefill = _prefill(step_time, case.prompt_tokens)
    context = case.streams * case.prompt_tokens
    steps = case.output_tokens - 1
    decode = step_time.of_generations(case.streams, context, steps)
    match case.figure:
        case "TTFT":
            return prefill
        case "batch":
            return _prefill(step_time, context) + decode
        case _:
            # NOTE: while one is answered, each of the others begins once, and all wait for that.
            others = (case.streams - 1) * (prefill - step_time.step)
            return (decode + others) / steps


def _prefill(step_time: StepTime, tokens: int) -> float:
    return step_time.seconds(StepWork(tokens, tokens * tokens / 2, 0, 0))


def _check(case: _Case) -> dict[str, object]:
    found = _formula(case)
    return {**case._asdict(), "formula": found, "more": found / case.published - 1}


def _preset(name: str, kv_format: str) -> dict[str, object]:
    setup = preset(name, kv_format)
    seconds = asdict(setup.step_time)
    return {"name": setup.name, "gpus": setup.gpus, "kv_tokens": setup.kv_tokens, **seconds}


def main() -> None:
    """Print all."""
    presets = [_preset(name, each) for name in preset_names() for each in NAMES]
    print(json.dumps({"checks": list(map(_check, CASES)), "presets": presets}, indent=2))


if __name__ == "__main__":
    main()
