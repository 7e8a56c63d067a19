"""How compiled code reads the rows of a `Memory`, as float32.

A place counts rows: (block * kv_heads + head) * block_size + offset.
"""

from typing import Any

import numpy as np
from numba import njit
from numba.extending import overload

from worker.kernels import access
from worker.kernels.memory import Elements, Fp8, Int4, Int8, range_of

# Elements of a group of int4, where head_dim has whole ones in each half.
CHUNK = 32

_FP8_BIAS = np.float32(2.0**120)
_INLINE: Any = {"error_model": "numpy", "forceinline": True}


def pair(memory, place, chunk, i):
    """Vectors of a row's elements from j on, and from j + head_dim / 2 on, but for its scale.

    Of a row whose head_dim is a multiple of 2 * CHUNK; j is chunk * CHUNK + i, and i below CHUNK.
    """
    raise NotImplementedError


def scale(memory, place):
    """What the elements that `pair` gives are to be multiplied by; NaN when it is not finite."""
    raise NotImplementedError


def unpack(memory, place, out):
    """Into `out`, [head_dim] float32, the elements of a row."""
    raise NotImplementedError


def prefetch(memory, place, token):
    """Ask for the cache lines of the row of a token.

    NOTE: what is beside the elements is little: the rows of four tokens share a line of it.
    """
    raise NotImplementedError


@overload(pair, jit_options=_INLINE)
def _pair_of(memory, place, chunk, i):
    return _PAIR[memory.instance_class]


@overload(scale, jit_options=_INLINE)
def _scale_of(memory, place):
    return _scale if memory.instance_class in {Int8, Fp8} else _one


@overload(prefetch, jit_options=_INLINE)
def _prefetch_of(memory, place, token):
    return _PREFETCH[memory.instance_class]


def _pair_elements(memory, place, chunk, i):
    dim = memory.elements.shape[3]
    start = place * dim + chunk * CHUNK + i
    return access.load(memory.elements, start), access.load(memory.elements, start + dim // 2)


def _pair_int8(memory, place, chunk, i):
    dim = memory.steps.shape[3]
    start = place * dim + chunk * CHUNK + i
    return access.load(memory.steps, start), access.load(memory.steps, start + dim // 2)


def _pair_fp8(memory, place, chunk, i):
    dim = memory.steps.shape[3]
    start = place * dim + chunk * CHUNK + i
    return access.load_fp8(memory.steps, start), access.load_fp8(memory.steps, start + dim // 2)


def _pair_int4(memory, place, chunk, i):
    half, groups = memory.packed.shape[3], memory.ranges.shape[3]
    start, group = place * half + chunk * CHUNK + i, place * groups + chunk
    return access.load_int4(memory.packed, start, memory.ranges, group, group + groups // 2)


def _one(memory, place):
    return np.float32(1)


def _scale(memory, place):
    number = access.element(memory.scales, place)
    return number + (number - number)


@njit(error_model="numpy", forceinline=True)
def _prefetch_row(rows, place):
    row = rows.shape[3]
    for element in range(0, row, access.line(rows)):
        access.prefetch_l2(rows, place * row + element)


def _prefetch_elements(memory, place, token):
    _prefetch_row(memory.elements, place)


def _prefetch_scaled(memory, place, token):
    _prefetch_row(memory.steps, place)
    if token & 3 == 0:
        access.prefetch_l2(memory.scales, place)


def _prefetch_int4(memory, place, token):
    # Two short rows share a line.
    if token & 1 == 0 or 2 * memory.packed.shape[3] > access.line(memory.packed):
        _prefetch_row(memory.packed, place)
    if token & 3 == 0:
        access.prefetch_l2(memory.ranges, place * memory.ranges.shape[3])


@overload(unpack, jit_options=_INLINE)
def _unpack_of(memory, place, out):
    return _UNPACK[memory.instance_class]


def _unpack_elements(memory, place, out):
    start = place * len(out)
    for i in range(len(out)):
        out[i] = access.element(memory.elements, start + i)


def _unpack_int8(memory, place, out):
    start, factor = place * len(out), scale(memory, place)
    for i in range(len(out)):
        out[i] = access.element(memory.steps, start + i) * factor


def _unpack_fp8(memory, place, out):
    start, factor = place * len(out), scale(memory, place)
    for i in range(len(out)):
        bits = np.int32(access.element(memory.steps, start + i))
        number = np.int32((bits & 0x80) << 24 | (bits & 0x7F) << 20).view(np.float32)
        out[i] = number * _FP8_BIAS * factor


def _unpack_int4(memory, place, out):
    half, groups = len(out) // 2, memory.ranges.shape[3]
    size = len(out) // groups
    low, high = out[:half], out[half:]
    for i in range(half):
        both = access.element(memory.packed, place * half + i)
        low[i] = np.int32(both & 15)
        high[i] = np.int32(both >> 4)
    for g in range(groups):
        factor, least = range_of(access.element(memory.ranges, place * groups + g))
        elements = out[g * size : (g + 1) * size]
        for i in range(size):
            elements[i] = elements[i] * factor + least


_PAIR = {Elements: _pair_elements, Int8: _pair_int8, Fp8: _pair_fp8, Int4: _pair_int4}
_PREFETCH = {
    Elements: _prefetch_elements,
    Int8: _prefetch_scaled,
    Fp8: _prefetch_scaled,
    Int4: _prefetch_int4,
}
_UNPACK = {
    Elements: _unpack_elements,
    Int8: _unpack_int8,
    Fp8: _unpack_fp8,
    Int4: _unpack_int4,
}
