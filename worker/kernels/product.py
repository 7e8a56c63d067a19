"""Products of rows with linear layers, shared among threads."""

from functools import partial

import numpy as np
from numba import njit

from worker.kernels.panels import WIDTH
from worker.kernels.simd import LANES, add, div, exp2, fma, load, mul, smaller, splat, spread, store
from worker.kernels.sync import take

ROWS = 4

# What becomes of a product: it is the output, it is added to it, or it is a gate and what that
# lets through, of which the output is silu(gate) * through.
PLAIN, ADDED, GATED = range(3)

# So many rows stay in a core's cache while panel after panel goes over them.
_CHUNK = 256

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
    panels = linear.panels[layer]
    scales, biases = linear.scales[layer], linear.biases[layer]
    width = LANES if kind == GATED else WIDTH
    count = len(panels)
    shares = (rows + _CHUNK - 1) // _CHUNK * count
    share = take(taken, 0)
    while share < shares:
        first, panel = share // count * _CHUNK, share % count
        at = panel * WIDTH
        scale_a, scale_b = load(scales, at), load(scales, at + LANES)
        bias_a, bias_b = load(biases, at), load(biases, at + LANES)
        for row in range(first, min(first + _CHUNK, rows), ROWS):
            a0, a1, a2, a3, b0, b1, b2, b3 = _block(inputs, row, panels[panel])
            for offset, a, b in ((0, a0, b0), (1, a1, b1), (2, a2, b2), (3, a3, b3)):
                factor = spread(factors, row + offset)
                _finish(
                    kind,
                    fma(a, mul(scale_a, factor), bias_a),
                    fma(b, mul(scale_b, factor), bias_b),
                    outputs,
                    (row + offset) * outputs.shape[1] + panel * width,
                )
        share = take(taken, 0)


@_compiled
def _block(inputs, row, panel):
    """The products of ROWS rows with a panel: its first LANES of each row, then the others."""
    x0 = row * inputs.shape[1]
    x1 = x0 + inputs.shape[1]
    x2 = x1 + inputs.shape[1]
    x3 = x2 + inputs.shape[1]
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = splat(np.float32(0))
    for k in range(len(panel)):
        a, b = load(panel, k * WIDTH), load(panel, k * WIDTH + LANES)
        x = spread(inputs, x0 + k)
        a0, b0 = fma(x, a, a0), fma(x, b, b0)
        x = spread(inputs, x1 + k)
        a1, b1 = fma(x, a, a1), fma(x, b, b1)
        x = spread(inputs, x2 + k)
        a2, b2 = fma(x, a, a2), fma(x, b, b2)
        x = spread(inputs, x3 + k)
        a3, b3 = fma(x, a, a3), fma(x, b, b3)
    return a0, a1, a2, a3, b0, b1, b2, b3


@_compiled
def _finish(kind, a, b, outputs, place):
    if kind == GATED:
        store(outputs, place, mul(_silu(a), b))
        return
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
