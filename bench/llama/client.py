"""Asks llama.cpp in a process of its own, where its threads wait for each other in its own way.

In ours they would sleep at each barrier, for it takes them from the same OpenMP settings.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gguf import GGMLQuantizationType

from bench.llama.gguf import write_gguf

TYPES = {"f32": GGMLQuantizationType.F32, "q8": GGMLQuantizationType.Q8_0}


class Llama:
    """A running `bench.llama.process`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def prefill(self, prompt: list[int]) -> float:
        """Seconds until the prompt has its first token."""
        return float(self._ask("prefill", prompt))

    def decode(self, batch: int, depth: int, steps: int) -> float:
        """Seconds of `steps` after `depth` tokens of each of `batch` sequences."""
        return float(self._ask("decode", batch, depth, steps))

    def greedy(self, prompt: list[int], new: int) -> list[int]:
        """The answer to a prompt, whatever ends it."""
        return list(self._ask("greedy", prompt, new))

    def _ask(self, *question: Any) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(question), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"llama.cpp ended at {question[0]!r}; its error is above")
        return json.loads(answer)


@contextmanager
def llamas(model: Path, threads: int, context: int) -> Iterator[dict[str, Llama]]:
    """One for each type of weights, none if `llama-cpp-python` is not installed.

    Args:
        model: a Hugging Face directory.
        threads: of each.
        context: tokens of the longest sequence.
    """
    environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    running: dict[str, Llama] = {}
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        for name, matrices in TYPES.items() if find_spec("llama_cpp") else ():
            gguf = Path(directory) / f"{name}.gguf"
            write_gguf(model, gguf, matrices)
            process = subprocess.Popen(
                [sys.executable, "-m", "bench.llama.process", gguf, str(threads), str(context)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            running[name] = Llama(stack.enter_context(process))
        yield running
