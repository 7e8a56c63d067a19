"""Runs a GGUF file in llama.cpp: `python -m bench.llama.process GGUF THREADS CONTEXT`.

Answers each line `[question, arguments...]` of its input with a line, both in JSON; the questions
are the public methods of `Model`.
"""

import json
import sys
import time
from itertools import accumulate

import llama_cpp
import numpy as np

SEQUENCES = 8
ERROR = 4  # GGML_LOG_LEVEL_ERROR, which llama_cpp takes for another


def _show_error(level: int, text: bytes, _: object) -> None:
    if level == ERROR:
        sys.stderr.write(text.decode())


LOG = llama_cpp.llama_log_callback(_show_error)


class Model:
    """llama.cpp as it comes: f16 KV and flash attention; logits are read as a sampler would.

    Args:
        gguf: the file.
        threads: for prefill and for decode.
        context: tokens of the longest sequence.
    """

    def __init__(self, gguf: str, threads: int, context: int) -> None:
        llama_cpp.llama_log_set(LOG, None)
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = SEQUENCES * context
        params.n_seq_max = SEQUENCES
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        model = llama_cpp.llama_model_load_from_file(
            gguf.encode(), llama_cpp.llama_model_default_params()
        )
        self._context = llama_cpp.llama_init_from_model(model, params)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        self._batch = llama_cpp.llama_batch_init(SEQUENCES * context, 0, 1)
        self._held = (0, 0)

    def prefill(self, prompt: list[int]) -> float:
        """See `bench.llama.client.Llama`."""
        self._clear()
        began = time.perf_counter()
        self._read([prompt], 0)
        return time.perf_counter() - began

    def decode(self, batch: int, depth: int, steps: int) -> float:
        """See `bench.llama.client.Llama`."""
        if self._held != (batch, depth):
            self._clear()
            self._read([[7] * depth] * batch, 0)
            self._held = (batch, depth)
        llama_cpp.llama_memory_seq_rm(self._memory, -1, depth, -1)
        tokens = [7] * batch
        began = time.perf_counter()
        for past in range(depth, depth + steps):
            tokens = self._read([[token] for token in tokens], past)
        return time.perf_counter() - began

    def greedy(self, prompt: list[int], new: int) -> list[int]:
        """See `bench.llama.client.Llama`."""
        self._clear()
        answer = self._read([prompt], 0)
        while len(answer) < new:
            answer += self._read([answer[-1:]], len(prompt) + len(answer) - 1)
        return answer

    def _clear(self) -> None:
        llama_cpp.llama_memory_clear(self._memory, False)
        self._held = (0, 0)

    def _read(self, rows: list[list[int]], past: int) -> list[int]:
        """Read a row of tokens in each sequence, all after `past` others; what follows each row."""
        batch, size = self._batch, 0
        for sequence, row in enumerate(rows):
            for offset, token in enumerate(row):
                batch.token[size], batch.pos[size] = token, past + offset
                batch.n_seq_id[size], batch.seq_id[size][0] = 1, sequence
                batch.logits[size] = offset == len(row) - 1
                size += 1
        batch.n_tokens = size
        if status := llama_cpp.llama_decode(self._context, batch):
            raise RuntimeError(f"llama_decode of {size} tokens after {past} returned {status}")
        return [self._choice(end - 1) for end in accumulate(map(len, rows))]

    def _choice(self, index: int) -> int:
        logits = llama_cpp.llama_get_logits_ith(self._context, index)
        return int(np.ctypeslib.as_array(logits, (self._vocab_size,)).argmax())


def main() -> None:
    gguf, threads, context = sys.argv[1:]
    model = Model(gguf, int(threads), int(context))
    for line in sys.stdin:
        question, *arguments = json.loads(line)
        print(json.dumps(getattr(model, question)(*arguments)), flush=True)


if __name__ == "__main__":
    main()
