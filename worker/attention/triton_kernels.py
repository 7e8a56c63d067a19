"""Attention over paged KV for GPUs, in Triton: flash-decoding with splits, and prefill alike.

A program takes a task of the plan and one KV head: it reads the split tile by tile, straight from
the blocks in their format, with an online softmax in powers of two. Scales of rows are folded into
logits and weights. Rows that have several splits are merged by a second kernel.

`KEYS` and `VALUES` are formats: "none", "int8", "fp8" or "int4". WIDTH is head_dim rounded up to a
power of two. The columns of an `int4` tile are the low halves of its bytes, padded to WIDTH / 2,
then the high halves.
"""

import triton
import triton.language as tl

# Of a task.
_COLUMNS: tl.constexpr = tl.constexpr(6)


@triton.jit
def attend(
    queries, output, parts, tops, totals, tasks, tables, table_width, query_starts, contexts,
    key_data, key_scales, value_data, value_scales, scale,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, RUN: tl.constexpr, PIECE: tl.constexpr, ROWS: tl.constexpr,
    TILE: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """Do one task for one KV head; grid (tasks, KV_HEADS).

    Args:
        queries: [T, KV_HEADS * GROUP, DIM].
        output: like `queries`, written where there is one split;
        parts: [tasks, KV_HEADS, ROWS, WIDTH] float32, where there are more, with
        tops: [tasks, KV_HEADS, ROWS] float32, the largest logit of each row, and
        totals: [tasks, KV_HEADS, ROWS] float32, the sum of its weights.
        tasks: [tasks, 6] int32, see `triton_plan.Task`.
        tables: [S, table_width] int64, the block tables.
        table_width: see there.
        query_starts: [S + 1] int64.
        contexts: [S] int64.
        key_data: elements, steps or packed codes.
        key_scales: of rows, or the ranges of `int4`, if the format has them.
        value_data: as for the keys.
        value_scales: as for the keys.
        scale: of the logits, for base 2.
        KV_HEADS: of the model.
        GROUP: query heads of each.
        DIM: head_dim.
        WIDTH: see above.
        BLOCK_SIZE: tokens of a block.
        RUN: elements that share a scale in `int4`.
        PIECE: the largest power of two that divides DIM / 2 and RUN.
        ROWS: of a task, at most.
        TILE: tokens of a tile.
        KEYS: see above.
        VALUES: see above.
    """
    program, head = tl.program_id(0), tl.program_id(1)
    task = tasks + program * _COLUMNS
    sequence, first_row = tl.load(task), tl.load(task + 1)
    start, stop, splits = tl.load(task + 2), tl.load(task + 3), tl.load(task + 5)
    first = tl.load(query_starts + sequence)
    new = tl.load(query_starts + sequence + 1) - first
    rows = first_row + tl.arange(0, ROWS)
    token = rows // GROUP
    real = token < new
    position = tl.load(contexts + sequence) - new + token
    place = ((first + token) * KV_HEADS + head) * GROUP + rows % GROUP

    columns = _columns(DIM, WIDTH, KEYS)
    query = tl.load(
        queries + place[:, None] * DIM + columns[None, :],
        mask=real[:, None] & (columns < DIM)[None, :],
        other=0,
    )
    attended = tl.zeros((ROWS, WIDTH), tl.float32)
    top = tl.full((ROWS,), -1e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    for tile in range(start, stop, TILE):
        context = tile + tl.arange(0, TILE)
        there = context < stop
        block = tl.load(
            tables + sequence * table_width + context // BLOCK_SIZE, mask=there, other=0
        )
        slot = (block * KV_HEADS + head) * BLOCK_SIZE + context % BLOCK_SIZE

        keys = _load(key_data, key_scales, slot, there, DIM, WIDTH, RUN, PIECE, KEYS)
        logits = tl.dot(query, tl.trans(keys.to(query.dtype)), input_precision="ieee") * scale
        if KEYS == "int8" or KEYS == "fp8":
            logits *= _row_scales(key_scales, slot, there)[None, :]
        seen = there[None, :] & (context[None, :] <= position[:, None])
        logits = tl.where(seen, logits, float("-inf"))

        higher = tl.maximum(top, tl.max(logits, 1))
        shrink = tl.exp2(top - higher)
        weights = tl.exp2(logits - higher[:, None])
        total = total * shrink + tl.sum(weights, 1)
        top = higher

        values = _load(value_data, value_scales, slot, there, DIM, WIDTH, RUN, PIECE, VALUES)
        if VALUES == "int8" or VALUES == "fp8":
            weights *= _row_scales(value_scales, slot, there)[None, :]
        attended = attended * shrink[:, None] + tl.dot(
            weights.to(query.dtype), values.to(query.dtype), input_precision="ieee"
        )

    if splits == 1:
        columns = _columns(DIM, WIDTH, VALUES)
        tl.store(
            output + place[:, None] * DIM + columns[None, :],
            attended / total[:, None],
            mask=real[:, None] & (columns < DIM)[None, :],
        )
    else:
        part = (program * KV_HEADS + head) * ROWS + tl.arange(0, ROWS)
        tl.store(parts + part[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :], attended)
        tl.store(tops + part, top)
        tl.store(totals + part, total)


@triton.jit
def merge(
    output, parts, tops, totals, tasks, query_starts,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """Write the output of rows with several splits; same grid and arguments as `attend`.

    A split in which a row saw no token has the weight 0.
    """
    program, head = tl.program_id(0), tl.program_id(1)
    task = tasks + program * _COLUMNS
    sequence, first_row = tl.load(task), tl.load(task + 1)
    split, splits = tl.load(task + 4), tl.load(task + 5)
    if (split == 0) & (splits > 1):
        first = tl.load(query_starts + sequence)
        new = tl.load(query_starts + sequence + 1) - first
        rows = first_row + tl.arange(0, ROWS)
        token = rows // GROUP
        attended = tl.zeros((ROWS, WIDTH), tl.float32)
        top = tl.full((ROWS,), -1e30, tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        for other in range(program, program + splits):
            part = (other * KV_HEADS + head) * ROWS + tl.arange(0, ROWS)
            its_top = tl.load(tops + part)
            higher = tl.maximum(top, its_top)
            shrink, share = tl.exp2(top - higher), tl.exp2(its_top - higher)
            place = part[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
            attended = attended * shrink[:, None] + tl.load(parts + place) * share[:, None]
            total = total * shrink + tl.load(totals + part) * share
            top = higher
        place = ((first + token) * KV_HEADS + head) * GROUP + rows % GROUP
        columns = _columns(DIM, WIDTH, VALUES)
        tl.store(
            output + place[:, None] * DIM + columns[None, :],
            attended / total[:, None],
            mask=(token < new)[:, None] & (columns < DIM)[None, :],
        )


@triton.jit
def _columns(DIM: tl.constexpr, WIDTH: tl.constexpr, FORMAT: tl.constexpr):
    """The element in each column of a tile; WIDTH where there is none."""
    columns = tl.arange(0, WIDTH)
    if FORMAT == "int4":
        byte = columns % (WIDTH // 2)
        element = columns // (WIDTH // 2) * (DIM // 2) + byte
        columns = tl.where(byte < DIM // 2, element, WIDTH)
    return columns


@triton.jit
def _load(
    data, scales, slot, there,
    DIM: tl.constexpr, WIDTH: tl.constexpr, RUN: tl.constexpr, PIECE: tl.constexpr,
    FORMAT: tl.constexpr,
):  # fmt: skip
    """A tile [TILE, WIDTH], rows yet to be multiplied by their scales; zeros where nothing is."""
    if FORMAT == "int4":
        tile = _load_int4(data, scales, slot, there, DIM, WIDTH, RUN, PIECE)
    else:
        columns = tl.arange(0, WIDTH)
        mask = there[:, None] & (columns < DIM)[None, :]
        tile = tl.load(data + slot[:, None] * DIM + columns[None, :], mask=mask, other=0.0)
        if FORMAT == "fp8" and data.dtype.element_ty == tl.uint8:
            tile = _float_of_fp8(tile)
    return tile


@triton.jit
def _load_int4(
    data, ranges, slot, there,
    DIM: tl.constexpr, WIDTH: tl.constexpr, RUN: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    # NOTE: a run of elements may lie across the halves; pieces of PIECE elements do not.
    TILE: tl.constexpr = slot.shape[0]
    HALF: tl.constexpr = WIDTH // 2
    bytes_ = tl.arange(0, HALF)
    mask = there[:, None] & (bytes_ < DIM // 2)[None, :]
    packed = tl.load(data + slot[:, None] * (DIM // 2) + bytes_[None, :], mask=mask, other=0)
    codes = tl.permute(tl.join(packed & 15, packed >> 4), (0, 2, 1))
    pieces = tl.reshape(codes, (TILE, WIDTH // PIECE, PIECE)).to(tl.float32)

    column = tl.arange(0, WIDTH // PIECE) * PIECE
    run = (column // HALF * (DIM // 2) + column % HALF) // RUN
    mask = there[:, None] & (column % HALF < DIM // 2)[None, :]
    place = 2 * (slot[:, None] * (DIM // RUN) + run[None, :])
    lowest = tl.load(ranges + place, mask=mask, other=0).to(tl.float32)
    factors = tl.load(ranges + place + 1, mask=mask, other=0).to(tl.float32)
    return tl.reshape(pieces * factors[:, :, None] + lowest[:, :, None], (TILE, WIDTH))


@triton.jit
def _row_scales(scales, slot, there):
    """Of the rows of a tile; NaN where a row is not finite."""
    factors = tl.load(scales + slot, mask=there, other=0)
    return tl.where(factors < float("inf"), factors, float("nan"))


@triton.jit
def _float_of_fp8(bits):
    """Float16 of e4m3 that is given as its bits, for a GPU that has no e4m3; but for NaN."""
    magnitude = (bits & 0x7F).to(tl.uint16) << 7
    sign = (bits & 0x80).to(tl.uint16) << 8
    # As a float16 of the same exponent and mantissa, but for the bias of the exponent.
    return (sign | magnitude).to(tl.float16, bitcast=True) * 256.0
