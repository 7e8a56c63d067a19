"""How rows of each KV format lie in memory, for compiled code: written, moved and read.

A `Memory` has the tensors of one `worker.kv.format.Rows` as arrays, [num_blocks, kv_heads,
block_size, ...] each. What is written reads as what `Rows.write` would have written.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload
from numpy.typing import NDArray

from worker.kernels import access

_INT8_LARGEST = np.float32(127)
_FP8_LARGEST = np.float32(448)
_INT4_LARGEST = np.float32(15)
_TINY = np.finfo(np.float32).tiny
_INFINITY = np.int32(0x7F800000)

# The smallest fp8 that has all its bits, and what brings a smaller number's bits to its last ones.
_FP8_NORMAL = np.int32(121 << 23)
_FP8_DENORMAL = np.int32(141 << 23)

_compiled = partial(njit, nogil=True, error_model="numpy")()


class Elements(NamedTuple):
    """Of `NoneRows`, float32."""

    elements: NDArray[np.float32]


class Int8(NamedTuple):
    """Of `Int8Rows`; `run` is the length of the runs that are rotated, 1 where none are."""

    steps: NDArray[np.int8]
    scales: NDArray[np.float32]
    run: int


class Fp8(NamedTuple):
    """Of `Fp8Rows`, its bits."""

    steps: NDArray[np.uint8]
    scales: NDArray[np.float32]


class Int4(NamedTuple):
    """Of `Int4Rows`; `run` as in `Int8`.

    `ranges` is [num_blocks, kv_heads, block_size, groups]; the low half of each is the bits of a
    minimum, the high one those of a scale.
    """

    packed: NDArray[np.uint8]
    ranges: NDArray[np.int32]
    run: int


Memory = Elements | Int8 | Fp8 | Int4


def at(memory, addresses):
    """A `Memory` like `memory` whose arrays are at `addresses`, int64, one for each in order."""
    raise NotImplementedError


def rotate(memory, row):
    """Rotate a float32 row [head_dim] in place, as this memory keeps its rows."""
    raise NotImplementedError


def store(memory, block, head, offset, row):
    """Write a float32 row [head_dim], rotated already."""
    raise NotImplementedError


@_compiled
def put(keys, values, slot, head, key, value):
    """Write a token's `key`, which is rotated in place, and its `value`."""
    block_size = keys[0].shape[2]
    block, offset = slot // block_size, slot % block_size
    rotate(keys, key)
    store(keys, block, head, offset, key)
    store(values, block, head, offset, value)


@overload(at, jit_options={"error_model": "numpy"})
def _at_of(memory, addresses):
    return _AT[memory.instance_class]


@overload(rotate, jit_options={"error_model": "numpy"})
def _rotate_of(memory, row):
    return _rotate_runs if memory.instance_class in {Int8, Int4} else _leave


@overload(store, jit_options={"error_model": "numpy"})
def _store_of(memory, block, head, offset, row):
    return _STORE[memory.instance_class]


def _elements_at(memory, addresses):
    return Elements(access.at(memory.elements, addresses[0]))


def _int8_at(memory, addresses):
    steps, scales = access.at(memory.steps, addresses[0]), access.at(memory.scales, addresses[1])
    return Int8(steps, scales, memory.run)


def _fp8_at(memory, addresses):
    return Fp8(access.at(memory.steps, addresses[0]), access.at(memory.scales, addresses[1]))


def _int4_at(memory, addresses):
    packed, ranges = access.at(memory.packed, addresses[0]), access.at(memory.ranges, addresses[1])
    return Int4(packed, ranges, memory.run)


def _leave(memory, row):
    pass


def _rotate_runs(memory, row):
    width = 1
    while width < memory.run:
        for start in range(0, len(row), 2 * width):
            low, high = row[start : start + width], row[start + width : start + 2 * width]
            for i in range(width):
                one, other = low[i], high[i]
                low[i] = one + other
                high[i] = one - other
        width *= 2
    if memory.run > 1:
        factor = np.float32(memory.run**-0.5)
        for i in range(len(row)):
            row[i] *= factor


def _store_elements(memory, block, head, offset, row):
    out = memory.elements[block, head, offset]
    for i in range(len(row)):
        out[i] = row[i]


def _store_int8(memory, block, head, offset, row):
    scale, divisor = _scale(row, _INT8_LARGEST)
    out = memory.steps[block, head, offset]
    for i in range(len(row)):
        step = np.rint(row[i] / divisor)
        # NOTE: what no number compares to is 0 here, as in torch, and its scale says NaN.
        out[i] = np.int32(step) if abs(step) <= _INT8_LARGEST else 0
    memory.scales[block, head, offset] = scale


def _store_fp8(memory, block, head, offset, row):
    scale, divisor = _scale(row, _FP8_LARGEST)
    out = memory.steps[block, head, offset]
    for i in range(len(row)):
        out[i] = _fp8_bits(row[i] / divisor)
    memory.scales[block, head, offset] = scale


@_compiled
def _scale(row, largest):
    """The scale of a row, NaN where one of it is, and what to divide by."""
    bits = np.int32(0)
    for i in range(len(row)):
        # Of numbers that are not negative, the order is that of their bits, and NaN is above all.
        bits = max(bits, _bits(row[i]) & np.int32(0x7FFFFFFF))
    scale = _of_bits(bits) / largest
    return scale, _TINY if scale < _TINY else scale


@_compiled
def _fp8_bits(number):
    """The e4m3 nearest to a float32, of two the even one; NaN is NaN."""
    bits = _bits(number)
    sign, magnitude = (bits >> 24) & 0x80, bits & np.int32(0x7FFFFFFF)
    if magnitude > _INFINITY:
        return sign | 0x7F
    magnitude = min(magnitude, _bits(_FP8_LARGEST))
    if magnitude < _FP8_NORMAL:
        return sign | (_bits(_of_bits(magnitude) + _of_bits(_FP8_DENORMAL)) - _FP8_DENORMAL)
    # The exponent's bias goes from 127 to 7.
    odd = (magnitude >> 20) & 1
    return sign | ((magnitude - np.int32(120 << 23) + 0x7FFFF + odd) >> 20)


def _store_int4(memory, block, head, offset, row):
    half, groups = len(row) // 2, memory.ranges.shape[3]
    size = len(row) // groups
    codes = np.empty(len(row), np.int32)
    for g in range(groups):
        elements = row[g * size : (g + 1) * size]
        least, most = _ends(elements)
        minimum = _at_most(least)
        base = _bfloat16(minimum)
        # Where the least is infinite, so is its distance from itself: NaN.
        distance = most - base + (least - least)
        scale = _at_most(-distance / _INT4_LARGEST) ^ 0x8000
        memory.ranges[block, head, offset, g] = np.int32(scale << 16 | minimum)
        _codes(elements, base, _bfloat16(scale), codes[g * size : (g + 1) * size])
    out = memory.packed[block, head, offset]
    low, high = codes[:half], codes[half:]
    for i in range(half):
        out[i] = low[i] | high[i] << 4


@_compiled
def _ends(elements):
    """The least and the most of some float32; both NaN if one is."""
    least, most = _INFINITY, -_INFINITY
    for i in range(len(elements)):
        place = _in_order(_bits(elements[i]))
        least, most = min(least, place), max(most, place)
    if least < ~_INFINITY or most > _INFINITY:
        return np.float32(np.nan), np.float32(np.nan)
    return _of_bits(_in_order(least)), _of_bits(_in_order(most))


@_compiled
def _in_order(bits):
    """Bits of float32 as integers of the same order, NaN beyond both infinities; and back."""
    return bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))


@_compiled
def _codes(elements, base, scale, out):
    """Codes of a group; zeros where its scale is not finite, as what is read says then."""
    divisor = max(scale, _TINY)
    for i in range(len(elements)):
        code = np.rint((elements[i] - base) / divisor)
        out[i] = np.int32(min(code, _INT4_LARGEST)) if code >= 0 else 0


@_compiled
def _at_most(number):
    """The bits of the largest bfloat16 that is not above a float32."""
    bits = _bits(number)
    if number != number:  # noqa: PLR0124
        return 0x7FC0
    return ((bits >> 16) & 0xFFFF) + (1 if bits < 0 and bits & 0xFFFF else 0)


@_compiled
def range_of(bits):
    """The scale and the minimum that an element of `Int4.ranges` says."""
    return _bfloat16(bits >> 16), _bfloat16(bits)


@_compiled
def _bfloat16(bits):
    """Of its bits, which are the last 16."""
    return _of_bits(np.int32(bits) << 16)


@_compiled
def _bits(number):
    return np.float32(number).view(np.int32)


@_compiled
def _of_bits(bits):
    return np.int32(bits).view(np.float32)


_AT = {Elements: _elements_at, Int8: _int8_at, Fp8: _fp8_at, Int4: _int4_at}
_STORE = {Elements: _store_elements, Int8: _store_int8, Fp8: _store_fp8, Int4: _store_int4}
