"""Attention over paged KV as compiled loops, for CPUs.

A task is some query rows of one KV head over some tokens of one sequence. Its context is read tile
by tile: the rows of `TILE` tokens are turned into float32 in the cache, and all query rows of the
task meet them there, with an online softmax in powers of two. Scales of rows are folded into logits
and weights. Few rows, as in decode, are dot products along head_dim; many, as in prefill, are small
matrix products with the query rows along the vectors of the CPU.

Query row r of a KV head is that of token r // group and query head r % group.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from worker.kernels.memory import Elements, Fp8, Int4, Int8
from worker.kernels.sync import take

TILE = 64
MOST_ROWS = 64
_FEW_ROWS = 8
_LANES = 16
_CACHE_LINE = 64

# Columns of a task.
SEQUENCE, HEAD, FIRST_ROW, END_ROW, FIRST_TOKEN, END_TOKEN, SPLIT, SPLITS = range(8)
COLUMNS = 8

# NOTE: no `nnan` and `ninf`: what is not finite must stay so.
_FAST = {"reassoc", "contract", "nsz", "arcp"}

_compiled = partial(njit, nogil=True, error_model="numpy", fastmath=_FAST)()

_LOG2_E = np.float32(1.4426950408889634)
_LOWEST = np.float32(-1e30)
_ROUNDER = np.float32(1.5 * 2**23)
_FP8_BIAS = np.float32(2.0**120)
_FP8_NAN = 0x7F


class Step(NamedTuple):
    """Args: `queries` and `output` [T, kv_heads, group, head_dim]; the rest as in `PagedBatch`."""

    queries: NDArray[np.float32]
    output: NDArray[np.float32]
    block_tables: NDArray[np.int64]
    query_starts: NDArray[np.int64]
    context_lengths: NDArray[np.int64]


@intrinsic
def _prefetch(typing, array, index):  # noqa: ARG001
    """Ask for the cache line of the element at the flat `index` of a contiguous `array`."""

    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        number, place = ir.IntType(32), builder.gep(data, [arguments[1]])
        kind = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
        builder.call(prefetch, [place, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@_compiled
def attend(step, tasks, taken, keys, values, scale, parts):
    """Do tasks until all are taken: called by each thread, with the same arguments.

    Args:
        step: see there.
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
        if task[END_ROW] - task[FIRST_ROW] <= _FEW_ROWS:
            _few_rows(step, task, keys, values, scale, parts[index])
        else:
            _many_rows(step, task, keys, values, scale, parts[index])
        index = take(taken, 0)


@_compiled
def merge(step, tasks, parts):
    """Write the output of all rows whose context was split, from their `parts`."""
    for index in range(len(tasks)):
        if tasks[index, SPLITS] > 1 and tasks[index, SPLIT] == 0:
            _merge(step, tasks[index], parts[index : index + tasks[index, SPLITS]])


@_compiled
def _few_rows(step, task, keys, values, scale, part):
    rows = task[END_ROW] - task[FIRST_ROW]
    dim = step.queries.shape[3]
    queries = np.zeros((rows, dim), np.float32)
    _queries(step, task, scale, queries)
    output = np.zeros((rows, dim), np.float32)
    weights = np.zeros((rows, TILE), np.float32)
    tops = np.zeros(rows, np.float32)
    totals = np.zeros(rows, np.float32)
    for row in range(rows):
        tops[row] = _LOWEST
    tile = np.zeros((TILE, dim), np.float32)
    key_scales = np.zeros(TILE, np.float32)
    value_scales = np.zeros(TILE, np.float32)
    for start in range(task[FIRST_TOKEN], task[END_TOKEN], TILE):
        end = min(start + TILE, task[END_TOKEN])
        _load_tile(keys, step, task, start, end, tile, key_scales)
        _dots(queries, tile, weights)
        _load_tile(values, step, task, start, end, tile, value_scales)
        for row in range(rows):
            seen = _position(step, task, row) + 1
            count = max(0, min(end, seen) - start)
            logits = weights[row]
            for token in range(count):
                logits[token] *= key_scales[token]
            top = _largest(logits[:count], tops[row])
            shrink = _exp2(tops[row] - top)
            total = totals[row] * shrink
            for token in range(count):
                weight = _exp2(logits[token] - top)
                total += weight
                logits[token] = weight * value_scales[token]
            for token in range(count, TILE):
                logits[token] = 0
            for i in range(dim):
                output[row, i] *= shrink
            tops[row] = top
            totals[row] = total
        _add_weighted(weights, tile, output)
    _finish(step, task, output, tops, totals, part)


@_compiled
def _dots(queries, tile, logits):
    """Into `logits`, queries @ tile.T."""
    rows, dim = queries.shape
    for row in range(rows):
        for token in range(0, TILE, 4):
            sum0 = sum1 = sum2 = sum3 = np.float32(0)
            for i in range(dim):
                query = queries[row, i]
                sum0 += query * tile[token, i]
                sum1 += query * tile[token + 1, i]
                sum2 += query * tile[token + 2, i]
                sum3 += query * tile[token + 3, i]
            logits[row, token] = sum0
            logits[row, token + 1] = sum1
            logits[row, token + 2] = sum2
            logits[row, token + 3] = sum3


@_compiled
def _add_weighted(weights, tile, output):
    """To `output`, add weights @ tile."""
    rows, dim = output.shape
    for row in range(rows):
        for token in range(0, TILE, _LANES):
            for i in range(dim):
                total = output[row, i]
                for lane in range(_LANES):
                    total += weights[row, token + lane] * tile[token + lane, i]
                output[row, i] = total


@_compiled
def _many_rows(step, task, keys, values, scale, part):
    rows = task[END_ROW] - task[FIRST_ROW]
    width = _rounded_up(rows, _LANES)
    dim = step.queries.shape[3]
    depth = _rounded_up(dim, 8)
    # Query rows are the last axis. NOTE: it is of constant size, else it would not be vectorized.
    queries = np.zeros((depth, MOST_ROWS), np.float32)
    _queries(step, task, scale, queries.T)
    output = np.zeros((depth, MOST_ROWS), np.float32)
    weights = np.zeros((TILE, MOST_ROWS), np.float32)
    tops = np.zeros(MOST_ROWS, np.float32)
    totals = np.zeros(MOST_ROWS, np.float32)
    shrinks = np.zeros(MOST_ROWS, np.float32)
    positions = np.zeros(MOST_ROWS, np.int64)
    for row in range(width):
        tops[row] = _LOWEST
        positions[row] = _position(step, task, min(row, rows - 1))
    tile = np.zeros((TILE, depth), np.float32)
    turned = np.zeros((depth, TILE), np.float32)
    scales = np.zeros(TILE, np.float32)
    for start in range(task[FIRST_TOKEN], task[END_TOKEN], TILE):
        end = min(start + TILE, task[END_TOKEN])
        _load_tile(keys, step, task, start, end, tile, scales)
        for token in range(TILE):
            for row in range(width):
                weights[token, row] = 0
        _add_product(tile, queries, weights, width)
        for token in range(TILE):
            for row in range(width):
                seen = start + token <= positions[row]
                weights[token, row] = weights[token, row] * scales[token] if seen else -np.inf
        _softmax(weights, tops, totals, shrinks, width)
        _load_tile(values, step, task, start, end, tile, scales)
        for i in range(depth):
            for token in range(TILE):
                turned[i, token] = tile[token, i]
        for token in range(TILE):
            for row in range(width):
                weights[token, row] *= scales[token]
        for i in range(depth):
            for row in range(width):
                output[i, row] *= shrinks[row]
        _add_product(turned, weights, output, width)
    _finish(step, task, output.T, tops, totals, part)


@njit(error_model="numpy", fastmath=_FAST, forceinline=True)
def _add_product(left, right, output, width):
    """To `width` columns of `output`, add left [4 i, 8 j] @ right."""
    # NOTE: slices, since only of constant indices is it known that they are not negative.
    for i in range(0, left.shape[0], 4):
        sums = output[i : i + 4]
        for j in range(0, left.shape[1], 8):
            these, factors = left[i : i + 4, j : j + 8], right[j : j + 8]
            for row in range(width):
                sum0 = sums[0, row]
                sum1 = sums[1, row]
                sum2 = sums[2, row]
                sum3 = sums[3, row]
                for k in range(8):
                    factor = factors[k, row]
                    sum0 += these[0, k] * factor
                    sum1 += these[1, k] * factor
                    sum2 += these[2, k] * factor
                    sum3 += these[3, k] * factor
                sums[0, row] = sum0
                sums[1, row] = sum1
                sums[2, row] = sum2
                sums[3, row] = sum3


@_compiled
def _softmax(logits, tops, totals, shrinks, width):
    """Logits [TILE, width] become weights; `shrinks` is what earlier ones are worth now."""
    for row in range(width):
        shrinks[row] = tops[row]
    for token in range(TILE):
        for row in range(width):
            logit = logits[token, row]
            tops[row] = logit if logit > tops[row] else tops[row]
    for row in range(width):
        shrinks[row] = _exp2(shrinks[row] - tops[row])
        totals[row] *= shrinks[row]
    for token in range(TILE):
        for row in range(width):
            weight = _exp2(logits[token, row] - tops[row])
            totals[row] += weight
            logits[token, row] = weight


# NOTE: a NaN may be passed over here: the weight that comes of it is NaN, and with it the output.
@njit(error_model="numpy", fastmath=_FAST | {"nnan"})
def _largest(logits, top):
    """Of all `logits` and `top`."""
    for logit in logits:
        top = logit if logit > top else top
    return top


@njit(error_model="numpy", fastmath=False)
def _exp2(x):
    """2 ** x of a float32 that is not above 0, to 2e-7 of itself; 0 of what is below -126."""
    # NOTE: adding a number so large rounds to an integer, whose low bits then are the mantissa's.
    rounded = x + _ROUNDER
    f = x - (rounded - _ROUNDER)
    power = np.float32(1.5403530e-4)
    power = power * f + np.float32(1.3333558e-3)
    power = power * f + np.float32(9.6181291e-3)
    power = power * f + np.float32(5.5504109e-2)
    power = power * f + np.float32(2.4022651e-1)
    power = power * f + np.float32(6.9314718e-1)
    power = power * f + np.float32(1)
    exponent = np.float32(rounded).view(np.int32) << 23
    scaled = np.int32(np.float32(power).view(np.int32) + exponent).view(np.float32)
    return np.float32(0) if x < np.float32(-126) else scaled


@_compiled
def _queries(step, task, scale, out):
    """Into `out` [rows, head_dim], the task's queries for logits of base 2."""
    start, group = step.query_starts[task[SEQUENCE]], step.queries.shape[2]
    factor = np.float32(scale) * _LOG2_E
    for row in range(task[FIRST_ROW], task[END_ROW]):
        query = step.queries[start + row // group, task[HEAD], row % group]
        for i in range(len(query)):
            out[row - task[FIRST_ROW], i] = query[i] * factor


@_compiled
def _position(step, task, row):
    """In its sequence, of a row of the task."""
    sequence = task[SEQUENCE]
    new = step.query_starts[sequence + 1] - step.query_starts[sequence]
    token = (task[FIRST_ROW] + row) // step.queries.shape[2]
    return step.context_lengths[sequence] - new + token


@_compiled
def _rounded_up(number, multiple):
    return (number + multiple - 1) // multiple * multiple


@_compiled
def _output(step, task, row):
    """Where the output of a row of the task belongs."""
    group = step.output.shape[2]
    token = step.query_starts[task[SEQUENCE]] + (task[FIRST_ROW] + row) // group
    return step.output[token, task[HEAD], (task[FIRST_ROW] + row) % group]


@_compiled
def _finish(step, task, output, tops, totals, part):
    """Write the task's `output` [rows, head_dim], or `part` of it when it is one of several."""
    dim = step.output.shape[3]
    for row in range(task[END_ROW] - task[FIRST_ROW]):
        if task[SPLITS] > 1:
            for i in range(dim):
                part[row, i] = output[row, i]
            part[row, dim] = tops[row]
            part[row, dim + 1] = totals[row]
        else:
            out = _output(step, task, row)
            for i in range(dim):
                out[i] = output[row, i] / totals[row]


@_compiled
def _merge(step, task, parts):
    """Write the output of the rows whose splits left `parts`; some may have seen no token."""
    dim = step.output.shape[3]
    for row in range(task[END_ROW] - task[FIRST_ROW]):
        top = _LOWEST
        for split in range(len(parts)):
            top = max(top, parts[split, row, dim])
        total = np.float32(0)
        for split in range(len(parts)):
            total += _exp2(parts[split, row, dim] - top) * parts[split, row, dim + 1]
        out = _output(step, task, row)
        for i in range(dim):
            out[i] = 0
        for split in range(len(parts)):
            share = _exp2(parts[split, row, dim] - top) / total
            for i in range(dim):
                out[i] += share * parts[split, row, i]


@_compiled
def _load_tile(memory, step, task, start, end, tile, scales):
    """Into `tile`, the rows of the tokens from `start` to `end`, to be multiplied by `scales`."""
    block_size = memory[0].shape[2]
    token = start
    while token < end:
        block = step.block_tables[task[SEQUENCE], token // block_size]
        first = token % block_size
        last = min(block_size, first + end - token)
        place = token - start
        _load(memory, block, task[HEAD], first, last, tile[place:], scales[place:])
        token += last - first
    # What comes next lies anywhere, so that no hardware would fetch it ahead.
    token = end
    while token < min(end + TILE, task[END_TOKEN]):
        block = step.block_tables[task[SEQUENCE], token // block_size]
        rows = memory[0][block, task[HEAD]]
        for element in range(0, rows.size, _CACHE_LINE // rows.itemsize):
            _prefetch(rows, element)
        token += block_size


def _load(memory, block, head, first, last, tile, scales):
    """The rows from `first` to `last` of a block."""
    raise NotImplementedError


@overload(_load, jit_options={"error_model": "numpy", "fastmath": _FAST})
def _load_of(memory, block, head, first, last, tile, scales):  # noqa: ARG001
    return _LOADS[memory.instance_class]


def _load_elements(memory, block, head, first, last, tile, scales):
    rows = memory.elements[block, head]
    for row in range(first, last):
        scales[row - first] = 1
        for i in range(rows.shape[1]):
            tile[row - first, i] = rows[row, i]


def _load_int8(memory, block, head, first, last, tile, scales):
    rows = memory.steps[block, head]
    for row in range(first, last):
        scales[row - first] = memory.scales[block, head, row]
        for i in range(rows.shape[1]):
            tile[row - first, i] = rows[row, i]


def _load_fp8(memory, block, head, first, last, tile, scales):
    rows = memory.steps[block, head]
    for row in range(first, last):
        scales[row - first] = memory.scales[block, head, row]
        for i in range(rows.shape[1]):
            sign, magnitude = np.int32(rows[row, i] & 0x80), np.int32(rows[row, i] & 0x7F)
            # As a float32 of the same exponent and mantissa, but for the bias of the exponent.
            bits = np.int32(sign << 24 | magnitude << 20)
            element = bits.view(np.float32) * _FP8_BIAS
            tile[row - first, i] = element if magnitude != _FP8_NAN else np.float32(np.nan)


def _load_int4(memory, block, head, first, last, tile, scales):
    rows = memory.packed[block, head]
    half = rows.shape[1]
    groups = memory.scales.shape[3]
    group = 2 * half // groups
    for row in range(first, last):
        out = tile[row - first]
        low, high = out[:half], out[half : 2 * half]
        scales[row - first] = 1
        for i in range(half):
            low[i] = np.int32(rows[row, i] & 15)
            high[i] = np.int32(rows[row, i] >> 4)
        for g in range(groups):
            scale = _float(memory.scales[block, head, row, g])
            minimum = _float(memory.minima[block, head, row, g])
            elements = out[g * group : (g + 1) * group]
            for i in range(group):
                elements[i] = elements[i] * scale + minimum


@_compiled
def _float(bits):
    """A bfloat16, given as its bits."""
    return np.uint32(np.uint32(bits) << 16).view(np.float32)


_LOADS = {Elements: _load_elements, Int8: _load_int8, Fp8: _load_fp8, Int4: _load_int4}
