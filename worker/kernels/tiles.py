"""Attention of many query rows, as in prefill: small matrix products over tiles of float32.

Query rows lie along the vectors, so that a softmax goes from vector to vector. Each row that is
stored is converted once for all of a task's query rows, into the cache.
"""

from functools import partial

import numpy as np
from numba import njit

from worker.kernels import reads
from worker.kernels.access import load, spread, store
from worker.kernels.simd import LANES, add, exp2, first, fma, larger, mul, splat, sub
from worker.kernels.task import (
    END_ROW,
    END_TOKEN,
    FIRST_ROW,
    FIRST_TOKEN,
    HEAD,
    LOWEST,
    MOST_ROWS,
    SEQUENCE,
    TILE,
    find_places,
    finish,
    position,
    rounded_up,
    take_queries,
)

# So many rows of a matrix are multiplied at once.
_UNROLLED = 4

_MINUS_INFINITY = np.float32(-np.inf)

_compiled = partial(njit, nogil=True, error_model="numpy")()


@_compiled
def attend_many(step, task, keys, values, scale, part):
    """Do a task."""
    rows = task[END_ROW] - task[FIRST_ROW]
    dim = step.queries.shape[3]
    queries = np.zeros((dim, MOST_ROWS), np.float32)
    take_queries(step, task, scale, queries.T)
    depth = rounded_up(dim, _UNROLLED)
    output = np.zeros((depth, MOST_ROWS), np.float32)
    weights = np.zeros((TILE, MOST_ROWS), np.float32)
    tops = np.full(MOST_ROWS, LOWEST, np.float32)
    sums = np.zeros(MOST_ROWS, np.float32)
    # NOTE: the products read the rows beyond a tile's last token, and columns beyond head_dim.
    tile = np.zeros((TILE, depth), np.float32)
    places = np.zeros(2 * TILE, np.int64)
    table, head = step.block_tables[task[SEQUENCE]], task[HEAD]
    kv_heads, block_size = keys[0].shape[1], keys[0].shape[2]
    end = task[END_TOKEN]
    width = 2 * LANES
    for start in range(task[FIRST_TOKEN], end, TILE):
        count = min(TILE, end - start)
        find_places(table, kv_heads, block_size, head, start, end, places)
        for token in range(count):
            reads.prefetch(keys, places[TILE + token], token)
            reads.unpack(keys, places[token], tile[token, :dim])
        for column in range(0, rows, width):
            last = min(column + width, rows) - 1
            seen = min(count, position(step, task, last) + 1 - start)
            _logits(tile, queries, seen, dim, column, weights)
            _hide(step, task, start, seen, column, weights)
            _weigh(seen, column, weights, tops, sums, output)
        for token in range(count):
            reads.prefetch(values, places[TILE + token], token)
            reads.unpack(values, places[token], tile[token, :dim])
        for column in range(0, rows, width):
            last = min(column + width, rows) - 1
            seen = min(count, position(step, task, last) + 1 - start)
            _add_weighted(tile, weights, seen, column, output)
    finish(step, task, output.T, tops, sums, part)


@_compiled
def _logits(tile, queries, seen, dim, column, weights):
    """Into 2 vectors of columns of `weights`, the first `seen` rows of `tile` @ `queries`."""
    depth = tile.shape[1]
    for token in range(0, seen, _UNROLLED):
        t0 = token * depth
        t1, t2, t3 = t0 + depth, t0 + 2 * depth, t0 + 3 * depth
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = splat(np.float32(0))
        for i in range(dim):
            at = i * MOST_ROWS + column
            a, b = load(queries, at), load(queries, at + LANES)
            t = spread(tile, t0 + i)
            a0, b0 = fma(t, a, a0), fma(t, b, b0)
            t = spread(tile, t1 + i)
            a1, b1 = fma(t, a, a1), fma(t, b, b1)
            t = spread(tile, t2 + i)
            a2, b2 = fma(t, a, a2), fma(t, b, b2)
            t = spread(tile, t3 + i)
            a3, b3 = fma(t, a, a3), fma(t, b, b3)
        at = token * MOST_ROWS + column
        store(weights, at, a0)
        store(weights, at + LANES, b0)
        store(weights, at + MOST_ROWS, a1)
        store(weights, at + MOST_ROWS + LANES, b1)
        store(weights, at + 2 * MOST_ROWS, a2)
        store(weights, at + 2 * MOST_ROWS + LANES, b2)
        store(weights, at + 3 * MOST_ROWS, a3)
        store(weights, at + 3 * MOST_ROWS + LANES, b3)


@_compiled
def _hide(step, task, start, seen, column, weights):
    """Make the logits of tokens after the rows' own -inf."""
    group = step.queries.shape[2]
    nearest = position(step, task, column)
    for token in range(max(0, nearest + 1 - start), seen):
        # The token's own query rows are the first that see it.
        hidden = (start + token - position(step, task, 0)) * group - task[FIRST_ROW] % group
        for at in (column, column + LANES):
            place = token * MOST_ROWS + at
            logits = load(weights, place)
            store(weights, place, first(hidden - at, splat(_MINUS_INFINITY), logits))


@_compiled
def _weigh(seen, column, weights, tops, sums, output):
    """Logits of `seen` tokens become weights; what there is of the output is worth less now."""
    for at in (column, column + LANES):
        before = top = load(tops, at)
        for token in range(seen):
            top = larger(load(weights, token * MOST_ROWS + at), top)
        shrink = exp2(sub(before, top))
        store(tops, at, top)
        sum_ = mul(load(sums, at), shrink)
        for token in range(seen):
            weight = exp2(sub(load(weights, token * MOST_ROWS + at), top))
            sum_ = add(sum_, weight)
            store(weights, token * MOST_ROWS + at, weight)
        store(sums, at, sum_)
        for i in range(len(output)):
            place = i * MOST_ROWS + at
            store(output, place, mul(load(output, place), shrink))


@_compiled
def _add_weighted(tile, weights, seen, column, output):
    """To 2 vectors of columns of `output`, add `tile`.T @ `weights` of the first `seen` tokens."""
    depth = tile.shape[1]
    for i in range(0, depth, _UNROLLED):
        o0 = i * MOST_ROWS + column
        o1, o2, o3 = o0 + MOST_ROWS, o0 + 2 * MOST_ROWS, o0 + 3 * MOST_ROWS
        a0, b0 = load(output, o0), load(output, o0 + LANES)
        a1, b1 = load(output, o1), load(output, o1 + LANES)
        a2, b2 = load(output, o2), load(output, o2 + LANES)
        a3, b3 = load(output, o3), load(output, o3 + LANES)
        for token in range(seen):
            at = token * MOST_ROWS + column
            a, b = load(weights, at), load(weights, at + LANES)
            from_ = token * depth + i
            t = spread(tile, from_)
            a0, b0 = fma(t, a, a0), fma(t, b, b0)
            t = spread(tile, from_ + 1)
            a1, b1 = fma(t, a, a1), fma(t, b, b1)
            t = spread(tile, from_ + 2)
            a2, b2 = fma(t, a, a2), fma(t, b, b2)
            t = spread(tile, from_ + 3)
            a3, b3 = fma(t, a, a3), fma(t, b, b3)
        store(output, o0, a0)
        store(output, o0 + LANES, b0)
        store(output, o1, a1)
        store(output, o1 + LANES, b1)
        store(output, o2, a2)
        store(output, o2 + LANES, b2)
        store(output, o3, a3)
        store(output, o3 + LANES, b3)
