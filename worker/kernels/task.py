"""What a task of attention is: some query rows of one KV head over some tokens of one sequence.

Query row r of a KV head is that of token r // group and query head r % group.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

# Tokens that are read at once.
TILE = 64

# Query rows of a task.
MOST_ROWS = 64

# Columns of a task.
SEQUENCE, HEAD, FIRST_ROW, END_ROW, FIRST_TOKEN, END_TOKEN, SPLIT, SPLITS = range(8)
COLUMNS = 8

LOWEST = np.float32(-1e30)

_LOG2_E = np.float32(1.4426950408889634)

_compiled = partial(njit, nogil=True, error_model="numpy")()


class Step(NamedTuple):
    """Args: `queries` and `output` [T, kv_heads, group, head_dim]; the rest as in `PagedBatch`."""

    queries: NDArray[np.float32]
    output: NDArray[np.float32]
    block_tables: NDArray[np.int64]
    query_starts: NDArray[np.int64]
    context_lengths: NDArray[np.int64]


@_compiled
def rounded_up(number, multiple):
    """`number`, or the next one that is a multiple."""
    return (number + multiple - 1) // multiple * multiple


@_compiled
def take_queries(step, task, scale, out):
    """Into `out` [rows, head_dim], the task's queries for logits of base 2."""
    start, group = step.query_starts[task[SEQUENCE]], step.queries.shape[2]
    factor = np.float32(scale) * _LOG2_E
    for row in range(task[FIRST_ROW], task[END_ROW]):
        query = step.queries[start + row // group, task[HEAD], row % group]
        for i in range(len(query)):
            out[row - task[FIRST_ROW], i] = query[i] * factor


@_compiled
def find_places(table, kv_heads, block_size, head, start, end, out):
    """Into `out` [2 * TILE] int64, the places of the rows of a tile's tokens and the next tile's.

    Of tokens at the end or beyond, it is that of the last one before.

    Args:
        table: the blocks of a sequence.
        kv_heads: of the memory.
        block_size: of the memory.
        head: a KV head.
        start: the first token.
        end: a token after it.
        out: see `reads`.
    """
    count = min(2 * TILE, end - start)
    ordinal = start // block_size
    offset = start - ordinal * block_size
    index = 0
    while index < count:
        first = (table[ordinal] * kv_heads + head) * block_size + offset
        more = min(block_size - offset, count - index)
        for token in range(more):
            out[index + token] = first + token
        index, ordinal, offset = index + more, ordinal + 1, 0
    for token in range(count, 2 * TILE):
        out[token] = out[count - 1]


@_compiled
def position(step, task, row):
    """In its sequence, of a row of the task."""
    sequence = task[SEQUENCE]
    new = step.query_starts[sequence + 1] - step.query_starts[sequence]
    token = (task[FIRST_ROW] + row) // step.queries.shape[2]
    return step.context_lengths[sequence] - new + token


@_compiled
def finish(step, task, output, tops, totals, part):
    """Write the task's `output` [rows, head_dim], or `part` of it when it is one of several."""
    dim = step.output.shape[3]
    for row in range(task[END_ROW] - task[FIRST_ROW]):
        if task[SPLITS] > 1:
            for i in range(dim):
                part[row, i] = output[row, i]
            part[row, dim] = tops[row]
            part[row, dim + 1] = totals[row]
        else:
            out = output_row(step, task, row)
            for i in range(dim):
                out[i] = output[row, i] / totals[row]


@_compiled
def output_row(step, task, row):
    """Where the output of a row of the task belongs."""
    group = step.output.shape[2]
    token = step.query_starts[task[SEQUENCE]] + (task[FIRST_ROW] + row) // group
    return step.output[token, task[HEAD], (task[FIRST_ROW] + row) % group]
