"""Products of rows with linear layers, shared among threads."""

from functools import partial

import numpy as np
from numba import njit

from worker.kernels.access import borrowed, load, spread, store
from worker.kernels.blocks import four, one, two, unpack
from worker.kernels.panels import WIDTH
from worker.kernels.simd import LANES, add, div, exp2, fma, mul, smaller, splat
from worker.kernels.sync import take

ROWS = 4

# What becomes of a product: it is the output, it is added to it, or it is a gate and what that
# lets through, of which the output is silu(gate) * through.
PLAIN, ADDED, GATED = range(3)

# So many rows stay in a core's cache while panel after panel goes over them.
_CHUNK = 256

# For more rows than these it pays to write an int8 panel down in float32 first.
_FEW = 8

_LOG2_E = np.float32(1.4426950408889634)

_compiled = partial(njit, nogil=True, error_model="numpy")()


def whole(rows: int) -> int:
    """`rows` rounded up to a multiple of ROWS, which arrays of them have."""
    return -(-rows // ROWS) * ROWS


@_compiled
def multiply(linear, layer, kind, rows, inputs, factors, outputs, taken):
    """Multiply each row of `inputs`, as worth `factor`, with a layer; each thread calls it alike.

    Args:
        linear: a `Linear`.
        layer: of it.
        kind: PLAIN, ADDED or GATED. With GATED a panel has LANES gates, then as many others.
        rows: there are; arrays of them have a multiple of ROWS.
        inputs: [rows, at least those of a panel] float32.
        factors: [rows] float32.
        outputs: [rows, those of all panels] float32; with GATED, half as many.
        taken: [1] int64, zero at first: the shares that threads have taken.
    """
    panels, scales = borrowed(linear.panels)[layer], borrowed(linear.scales)[layer]
    biases = borrowed(linear.biases)[layer]
    inputs, factors, outputs = borrowed(inputs), borrowed(factors), borrowed(outputs)
    count, depth = len(panels), panels.shape[1]
    scaled = scales.shape[1] > 1
    unpacked = np.empty((depth if scaled and rows > _FEW else 0, WIDTH), np.float32)
    ones = np.ones((1, WIDTH), np.float32)
    shares = (rows + _CHUNK - 1) // _CHUNK * count
    share = take(taken, 0)
    while share < shares:
        first, at = share // count * _CHUNK, share % count
        last = min(first + _CHUNK, rows)
        rest = at, biases, kind, factors, outputs
        if scaled and last - first > _FEW:
            unpack(panels[at], scales[at], linear.group, unpacked)
            _multiply_rows(first, last, inputs, unpacked, ones, depth, *rest)
        else:
            _multiply_rows(first, last, inputs, panels[at], scales[at], linear.group, *rest)
        share = take(taken, 0)


@_compiled
def _multiply_rows(first, last, inputs, panel, scales, group, at, biases, kind, factors, outputs):
    """Multiply the rows from `first` to `last` with `panel`, which is the layer's number `at`."""
    rest = at, biases, kind, factors, outputs
    for row in range(first, last, ROWS):
        if last - row == 1:
            _finish(one(inputs, row, panel, scales, group), row, *rest)
        elif last - row == 2:
            p0, p1 = two(inputs, row, panel, scales, group)
            _finish(p0, row, *rest)
            _finish(p1, row + 1, *rest)
        else:
            p0, p1, p2, p3 = four(inputs, row, panel, scales, group)
            _finish(p0, row, *rest)
            _finish(p1, row + 1, *rest)
            _finish(p2, row + 2, *rest)
            _finish(p3, row + 3, *rest)


@_compiled
def _finish(product, row, at, biases, kind, factors, outputs):
    """Write the product of a row with panel number `at`."""
    factor = spread(factors, row)
    a = fma(product[0], factor, load(biases, at * WIDTH))
    b = fma(product[1], factor, load(biases, at * WIDTH + LANES))
    start = row * outputs.shape[1]
    if kind == GATED:
        store(outputs, start + at * LANES, mul(_silu(a), b))
        return
    place = start + at * WIDTH
    if kind == ADDED:
        a = add(a, load(outputs, place))
        b = add(b, load(outputs, place + LANES))
    store(outputs, place, a)
    store(outputs, place + LANES, b)


@_compiled
def _silu(a):
    """Gives a / (1 + exp(-a))."""
    power = exp2(smaller(mul(a, splat(-_LOG2_E)), splat(np.float32(126))))
    return div(a, add(splat(np.float32(1)), power))
