"""Attention over paged KV as compiled loops, for CPUs.

Threads share a step's tasks; see `task`. The context of a task is read tile by tile, with an online
softmax in powers of two. Few query rows are dot products (`dots`), many are small matrix products
(`tiles`).
"""

from functools import partial

import numpy as np
from numba import njit

from worker.kernels import dots, memory
from worker.kernels.sync import take
from worker.kernels.task import (
    COLUMNS,
    END_ROW,
    FIRST_ROW,
    LOWEST,
    MOST_ROWS,
    SPLIT,
    SPLITS,
    TILE,
    Step,
    output_row,
)
from worker.kernels.tiles import attend_many

__all__ = ["COLUMNS", "MOST_ROWS", "TILE", "Step", "attend", "merge", "write"]

# Tokens that a thread takes at once to write.
_SHARE = 16

_compiled = partial(njit, nogil=True, error_model="numpy")()


@_compiled
def write(slots, rows, queries, keys, values, taken):
    """Store the KV of new tokens and rotate their queries: called by each thread alike.

    Args:
        slots: [T] int64; -1: the token is there already.
        rows: keys and values, [T, kv_heads, head_dim] float32 each.
        queries: [T, kv_heads, group, head_dim] float32, which are rotated as the keys are.
        keys: a `Memory`.
        values: a `Memory`.
        taken: [1] int64, the shares of the tokens taken so far.
    """
    row = np.empty(queries.shape[3], np.float32)
    first: int = take(taken, 0) * _SHARE
    while first < len(slots):
        for token in range(first, min(first + _SHARE, len(slots))):
            for head in range(queries.shape[1]):
                for query in range(queries.shape[2]):
                    memory.rotate(keys, queries[token, head, query])
                if slots[token] >= 0:
                    row[:] = rows[0][token, head]
                    memory.put(keys, values, slots[token], head, row, rows[1][token, head])
        first = take(taken, 0) * _SHARE


@_compiled
def attend(step, tasks, taken, keys, values, scale, parts):
    """Do tasks until all are taken: called by each thread, with the same arguments.

    Args:
        step: `Step`.
        tasks: [tasks, COLUMNS] int64; the splits of some rows follow each other.
        taken: [1] int64, the number of tasks taken so far.
        keys: a `Memory`.
        values: a `Memory`.
        scale: of the logits.
        parts: [tasks, MOST_ROWS, head_dim + 2] float32. Takes from each task that is one of several
            splits: for each row its output, its largest logit and its sum of weights.
    """
    index: int = take(taken, 0)
    while index < len(tasks):
        task = tasks[index]
        if task[END_ROW] - task[FIRST_ROW] <= dots.MOST_ROWS:
            dots.attend_few(step, task, keys, values, scale, parts[index])
        else:
            attend_many(step, task, keys, values, scale, parts[index])
        index = take(taken, 0)


@_compiled
def merge(step, tasks, parts):
    """Write the output of all rows whose context was split, from their `parts`."""
    for index in range(len(tasks)):
        if tasks[index, SPLITS] > 1 and tasks[index, SPLIT] == 0:
            _merge(step, tasks[index], parts[index : index + tasks[index, SPLITS]])


@_compiled
def _merge(step, task, parts):
    """Write the output of the rows whose splits left `parts`; some may have seen no token."""
    dim = step.output.shape[3]
    for row in range(task[END_ROW] - task[FIRST_ROW]):
        top = LOWEST
        for split in range(len(parts)):
            top = max(top, parts[split, row, dim])
        total = np.float32(0)
        for split in range(len(parts)):
            total += np.exp2(parts[split, row, dim] - top) * parts[split, row, dim + 1]
        out = output_row(step, task, row)
        for i in range(dim):
            out[i] = 0
        for split in range(len(parts)):
            share = np.exp2(parts[split, row, dim] - top) / total
            for i in range(dim):
                out[i] += share * parts[split, row, i]
