"""Products of one, two or four rows with one panel, whose sums stay in registers.

Each holds eight vectors of sums, two of weights and one of an input, of the 16 that AVX2 has. Few
rows have few sums, each of which waits for the one before; so they take several inputs at once.
A product is a pair of vectors for each row: the first LANES outputs of the panel, and the others.
"""

from functools import partial

import numpy as np
from numba import njit

from worker.kernels.access import load, prefetch, spread, store
from worker.kernels.panels import WIDTH
from worker.kernels.simd import LANES, add, fma, mul, splat

# By so many inputs, fetching a panel is ahead of reading it.
_AHEAD = 64

_compiled = partial(njit, nogil=True, error_model="numpy")()


@_compiled
def one(inputs, row, panel, scales, group):
    """The product of one row.

    Args:
        inputs: [rows, at least those of the panel] float32.
        row: of it.
        panel: [inputs, WIDTH], see `panels.Linear`.
        scales: [groups, WIDTH] of the panel.
        group: inputs of a group.
    """
    x = row * inputs.shape[1]
    sum_a = sum_b = splat(np.float32(0))
    for index in range(len(scales)):
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = splat(np.float32(0))
        k, end = index * group, min((index + 1) * group, len(panel))
        while k + 4 <= end:
            a0, b0 = _add(inputs, x + k, _pair(panel, k), a0, b0)
            a1, b1 = _add(inputs, x + k + 1, _pair(panel, k + 1), a1, b1)
            a2, b2 = _add(inputs, x + k + 2, _pair(panel, k + 2), a2, b2)
            a3, b3 = _add(inputs, x + k + 3, _pair(panel, k + 3), a3, b3)
            k += 4
        while k < end:
            a0, b0 = _add(inputs, x + k, _pair(panel, k), a0, b0)
            k += 1
        scale_a, scale_b = _pair(scales, index)
        sum_a = fma(add(add(a0, a1), add(a2, a3)), scale_a, sum_a)
        sum_b = fma(add(add(b0, b1), add(b2, b3)), scale_b, sum_b)
    return sum_a, sum_b


@_compiled
def two(inputs, row, panel, scales, group):
    """The products of two rows, `row` and the next; see `one`."""
    x0 = row * inputs.shape[1]
    x1 = x0 + inputs.shape[1]
    sum_a0 = sum_a1 = sum_b0 = sum_b1 = splat(np.float32(0))
    for index in range(len(scales)):
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = splat(np.float32(0))
        k, end = index * group, min((index + 1) * group, len(panel))
        while k + 2 <= end:
            weights = _pair(panel, k)
            a0, b0 = _add(inputs, x0 + k, weights, a0, b0)
            a1, b1 = _add(inputs, x1 + k, weights, a1, b1)
            weights = _pair(panel, k + 1)
            a2, b2 = _add(inputs, x0 + k + 1, weights, a2, b2)
            a3, b3 = _add(inputs, x1 + k + 1, weights, a3, b3)
            k += 2
        if k < end:
            weights = _pair(panel, k)
            a0, b0 = _add(inputs, x0 + k, weights, a0, b0)
            a1, b1 = _add(inputs, x1 + k, weights, a1, b1)
        scale_a, scale_b = _pair(scales, index)
        sum_a0, sum_b0 = fma(add(a0, a2), scale_a, sum_a0), fma(add(b0, b2), scale_b, sum_b0)
        sum_a1, sum_b1 = fma(add(a1, a3), scale_a, sum_a1), fma(add(b1, b3), scale_b, sum_b1)
    return (sum_a0, sum_b0), (sum_a1, sum_b1)


@_compiled
def four(inputs, row, panel, scales, group):
    """The products of four rows, `row` and the next three; see `one`."""
    x0 = row * inputs.shape[1]
    x1 = x0 + inputs.shape[1]
    x2 = x1 + inputs.shape[1]
    x3 = x2 + inputs.shape[1]
    sum_a0 = sum_a1 = sum_a2 = sum_a3 = splat(np.float32(0))
    sum_b0 = sum_b1 = sum_b2 = sum_b3 = splat(np.float32(0))
    for index in range(len(scales)):
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = splat(np.float32(0))
        for k in range(index * group, min((index + 1) * group, len(panel))):
            prefetch(panel, (k + _AHEAD) * WIDTH)
            weights = _pair(panel, k)
            a0, b0 = _add(inputs, x0 + k, weights, a0, b0)
            a1, b1 = _add(inputs, x1 + k, weights, a1, b1)
            a2, b2 = _add(inputs, x2 + k, weights, a2, b2)
            a3, b3 = _add(inputs, x3 + k, weights, a3, b3)
        scale_a, scale_b = _pair(scales, index)
        sum_a0, sum_b0 = fma(a0, scale_a, sum_a0), fma(b0, scale_b, sum_b0)
        sum_a1, sum_b1 = fma(a1, scale_a, sum_a1), fma(b1, scale_b, sum_b1)
        sum_a2, sum_b2 = fma(a2, scale_a, sum_a2), fma(b2, scale_b, sum_b2)
        sum_a3, sum_b3 = fma(a3, scale_a, sum_a3), fma(b3, scale_b, sum_b3)
    return (sum_a0, sum_b0), (sum_a1, sum_b1), (sum_a2, sum_b2), (sum_a3, sum_b3)


@_compiled
def unpack(panel, scales, group, weights):
    """Into `weights` [inputs, WIDTH] float32, those of a panel; see `one`."""
    for index in range(len(scales)):
        scale_a, scale_b = _pair(scales, index)
        for k in range(index * group, min((index + 1) * group, len(panel))):
            a, b = _pair(panel, k)
            store(weights, k * WIDTH, mul(a, scale_a))
            store(weights, k * WIDTH + LANES, mul(b, scale_b))


@_compiled
def _pair(rows, k):
    """Row `k` of [rows, WIDTH]."""
    return load(rows, k * WIDTH), load(rows, k * WIDTH + LANES)


@_compiled
def _add(inputs, at, weights, sum_a, sum_b):
    """The sums with the input `at`, times the two `weights`, added."""
    x = spread(inputs, at)
    return fma(x, weights[0], sum_a), fma(x, weights[1], sum_b)
