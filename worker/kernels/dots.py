"""Attention of few query rows, as in decode: what is stored is read once, straight into registers.

A tile's logits are dot products along head_dim, its output weighted sums of rows. The rows of the
queries go in blocks of 4, 2 or 1, for which all that is read of the memory is converted once.
"""

from functools import partial

import numpy as np
from numba import njit

from worker.kernels import reads
from worker.kernels.access import element, load, spread, store, totals
from worker.kernels.memory import Elements
from worker.kernels.reads import CHUNK
from worker.kernels.simd import (
    LANES,
    add,
    exp2,
    first,
    fma,
    larger,
    largest,
    mul,
    splat,
    sub,
    total,
)
from worker.kernels.task import (
    END_ROW,
    END_TOKEN,
    FIRST_ROW,
    FIRST_TOKEN,
    HEAD,
    LOWEST,
    SEQUENCE,
    TILE,
    find_places,
    finish,
    position,
    rounded_up,
    take_queries,
)

MOST_ROWS = 8

_BLOCK = 4
_MINUS_INFINITY = np.float32(-np.inf)

_compiled = partial(njit, nogil=True, error_model="numpy")()


@_compiled
def attend_few(step, task, keys, values, scale, part):
    """Do a task of at most MOST_ROWS rows."""
    rows = task[END_ROW] - task[FIRST_ROW]
    dim = step.queries.shape[3]
    # NOTE: rows of another head_dim go through a tile in which they are wide enough.
    whole = rounded_up(dim, 2 * CHUNK)
    tile = np.zeros((1, 1, TILE if whole > dim else 0, whole), np.float32)
    in_order = np.arange(TILE)
    queries = np.zeros((MOST_ROWS, whole), np.float32)
    take_queries(step, task, scale, queries)
    output = np.zeros((MOST_ROWS, whole), np.float32)
    ends = np.zeros(MOST_ROWS, np.int64)
    for row in range(rows):
        ends[row] = position(step, task, row) + 1
    weights = np.zeros((MOST_ROWS, TILE), np.float32)
    sums = np.empty((MOST_ROWS, TILE, LANES), np.float32)
    tops = np.full(MOST_ROWS, LOWEST, np.float32)
    weighed = np.zeros((MOST_ROWS, LANES), np.float32)
    shrinks = np.zeros(MOST_ROWS, np.float32)
    key_scales = np.ones(TILE, np.float32)
    value_scales = np.ones(TILE, np.float32)
    places = np.zeros(2 * TILE, np.int64)
    table, head = step.block_tables[task[SEQUENCE]], task[HEAD]
    kv_heads, block_size = keys[0].shape[1], keys[0].shape[2]
    end = task[END_TOKEN]
    for start in range(task[FIRST_TOKEN], end, TILE):
        count = min(TILE, end - start)
        find_places(table, kv_heads, block_size, head, start, end, places)
        _ask(keys, places)
        if whole == dim:
            for token in range(count):
                key_scales[token] = reads.scale(keys, element(places, token))
                value_scales[token] = reads.scale(values, element(places, token))
            _dots(keys, places, count, rows, queries, sums)
        else:
            _fill(keys, places, count, tile[0, 0, :, :dim])
            for row in range(0, rows, _BLOCK):
                _dots_4(Elements(tile), in_order, count, row, queries, sums)
        for row in range(rows):
            seen = min(count, ends[row] - start)
            shrinks[row] = _weigh(row, seen, sums, key_scales, value_scales, weights, tops, weighed)
        _ask(values, places)
        if whole == dim:
            _add_weighted(values, places, count, rows, weights, shrinks, output)
        else:
            _fill(values, places, count, tile[0, 0, :, :dim])
            for row in range(0, rows, _BLOCK):
                _add_4(Elements(tile), in_order, count, row, weights, shrinks, output)
    sums_of_weights = np.zeros(MOST_ROWS, np.float32)
    for row in range(rows):
        sums_of_weights[row] = total(load(weighed, row * LANES))
    finish(step, task, output, tops, sums_of_weights, part)


@_compiled
def _ask(memory, places):
    """Ask for the rows of the next tile."""
    for token in range(TILE, 2 * TILE):
        reads.prefetch(memory, element(places, token), token)


@_compiled
def _fill(memory, places, count, tile):
    for token in range(count):
        reads.unpack(memory, places[token], tile[token])


@_compiled
def _weigh(row, seen, sums, key_scales, value_scales, weights, tops, weighed):
    """The row's weights of the first `seen` tokens of a tile; what earlier ones are worth now."""
    before = top = splat(tops[row])
    for token in range(0, TILE, LANES):
        logits = mul(totals(sums, (row * TILE + token) * LANES), load(key_scales, token))
        logits = first(seen - token, logits, splat(_MINUS_INFINITY))
        store(weights, row * TILE + token, logits)
        top = larger(logits, top)
    tops[row] = largest(top)
    top = splat(tops[row])
    shrink = exp2(sub(before, top))
    all_ = mul(load(weighed, row * LANES), shrink)
    for token in range(0, TILE, LANES):
        weight = exp2(sub(load(weights, row * TILE + token), top))
        all_ = add(all_, weight)
        store(weights, row * TILE + token, mul(weight, load(value_scales, token)))
    store(weighed, row * LANES, all_)
    return total(shrink) / LANES


@_compiled
def _dots(keys, places, count, rows, queries, sums):
    row = 0
    while row < rows:
        if rows - row >= 3:
            _dots_4(keys, places, count, row, queries, sums)
        elif rows - row == 2:
            _dots_2(keys, places, count, row, queries, sums)
        else:
            _dots_1(keys, places, count, row, queries, sums)
        row += _BLOCK


@_compiled
def _add_weighted(values, places, count, rows, weights, shrinks, output):
    row = 0
    while row < rows:
        if rows - row >= 3:
            _add_4(values, places, count, row, weights, shrinks, output)
        elif rows - row == 2:
            _add_2(values, places, count, row, weights, shrinks, output)
        else:
            _add_1(values, places, count, row, weights, shrinks, output)
        row += _BLOCK


def _dots_of(block):
    """Of the rows [row, row + block) with some tokens at once, into `sums`, to be totalled yet."""
    four = block < 4

    def dots(keys, places, count, row, queries, sums):
        dim = queries.shape[1]
        half = dim // 2
        q0 = row * dim
        q1, q2, q3 = q0 + dim, q0 + 2 * dim, q0 + 3 * dim
        zero = splat(np.float32(0))
        for token in range(0, count, 4 if four else 2):
            t0, t1 = element(places, token), element(places, token + 1)
            a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zero
            if four:
                t2, t3 = element(places, token + 2), element(places, token + 3)
                c0 = c1 = d0 = d1 = zero
            for chunk in range(half // CHUNK):
                for i in range(0, CHUNK, LANES):
                    at = chunk * CHUNK + i
                    a, x = reads.pair(keys, t0, chunk, i)
                    b, y = reads.pair(keys, t1, chunk, i)
                    q, r = load(queries, q0 + at), load(queries, q0 + at + half)
                    a0, b0 = fma(x, r, fma(a, q, a0)), fma(y, r, fma(b, q, b0))
                    if block > 1:
                        s, t = load(queries, q1 + at), load(queries, q1 + at + half)
                        a1, b1 = fma(x, t, fma(a, s, a1)), fma(y, t, fma(b, s, b1))
                    if four:
                        a, x = reads.pair(keys, t2, chunk, i)
                        b, y = reads.pair(keys, t3, chunk, i)
                        c0, d0 = fma(x, r, fma(a, q, c0)), fma(y, r, fma(b, q, d0))
                        if block > 1:
                            c1, d1 = fma(x, t, fma(a, s, c1)), fma(y, t, fma(b, s, d1))
                    else:
                        q, r = load(queries, q2 + at), load(queries, q2 + at + half)
                        a2, b2 = fma(x, r, fma(a, q, a2)), fma(y, r, fma(b, q, b2))
                        q, r = load(queries, q3 + at), load(queries, q3 + at + half)
                        a3, b3 = fma(x, r, fma(a, q, a3)), fma(y, r, fma(b, q, b3))
            at = (row * TILE + token) * LANES
            _put(sums, at, LANES, a0, b0)
            if four:
                _put(sums, at + 2 * LANES, LANES, c0, d0)
            if block > 1:
                _put(sums, at + TILE * LANES, LANES, a1, b1)
                if four:
                    _put(sums, at + (TILE + 2) * LANES, LANES, c1, d1)
                else:
                    _put(sums, at + 2 * TILE * LANES, LANES, a2, b2)
                    _put(sums, at + 3 * TILE * LANES, LANES, a3, b3)

    return _compiled(dots)


def _add_of(block):
    """To the rows [row, row + block) of `output`, worth `shrinks` now, weighted sums of values."""
    two = block < 4
    step = 2 * LANES if two else LANES

    def add_weighted(values, places, count, row, weights, shrinks, output):
        dim = output.shape[1]
        half = dim // 2
        w0 = row * TILE
        w1, w2, w3 = w0 + TILE, w0 + 2 * TILE, w0 + 3 * TILE
        for chunk in range(half // CHUNK):
            for i in range(0, CHUNK, step):
                o0 = row * dim + chunk * CHUNK + i
                o1, o2, o3 = o0 + dim, o0 + 2 * dim, o0 + 3 * dim
                a0, b0 = _worth(output, o0, half, shrinks, row)
                if block > 1:
                    a1, b1 = _worth(output, o1, half, shrinks, row + 1)
                if two:
                    c0, d0 = _worth(output, o0 + LANES, half, shrinks, row)
                    if block > 1:
                        c1, d1 = _worth(output, o1 + LANES, half, shrinks, row + 1)
                else:
                    a2, b2 = _worth(output, o2, half, shrinks, row + 2)
                    a3, b3 = _worth(output, o3, half, shrinks, row + 3)
                for token in range(count):
                    place = element(places, token)
                    a, b = reads.pair(values, place, chunk, i)
                    w = spread(weights, w0 + token)
                    a0, b0 = fma(a, w, a0), fma(b, w, b0)
                    if two:
                        c, d = reads.pair(values, place, chunk, i + LANES)
                        c0, d0 = fma(c, w, c0), fma(d, w, d0)
                    if block > 1:
                        w = spread(weights, w1 + token)
                        a1, b1 = fma(a, w, a1), fma(b, w, b1)
                        if two:
                            c1, d1 = fma(c, w, c1), fma(d, w, d1)
                    if not two:
                        w = spread(weights, w2 + token)
                        a2, b2 = fma(a, w, a2), fma(b, w, b2)
                        w = spread(weights, w3 + token)
                        a3, b3 = fma(a, w, a3), fma(b, w, b3)
                _put(output, o0, half, a0, b0)
                if block > 1:
                    _put(output, o1, half, a1, b1)
                if two:
                    _put(output, o0 + LANES, half, c0, d0)
                    if block > 1:
                        _put(output, o1 + LANES, half, c1, d1)
                else:
                    _put(output, o2, half, a2, b2)
                    _put(output, o3, half, a3, b3)

    return _compiled(add_weighted)


@_compiled
def _worth(output, at, half, shrinks, row):
    """The output so far, `half` of a row apart, as it is worth now."""
    shrink = spread(shrinks, row)
    return mul(load(output, at), shrink), mul(load(output, at + half), shrink)


@_compiled
def _put(array, at, apart, a, b):
    store(array, at, a)
    store(array, at + apart, b)


_dots_1, _dots_2, _dots_4 = _dots_of(1), _dots_of(2), _dots_of(4)
_add_1, _add_2, _add_4 = _add_of(1), _add_of(2), _add_of(4)
