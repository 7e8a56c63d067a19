"""How compiled code reads and writes arrays: as vectors, and without what numba does beside.

Arrays are contiguous, and an index counts their elements from the first as if they had one
dimension; no index is checked.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from worker.kernels.simd import FLOAT, INT, INTS, LANES, VECTOR, fused, splatted, vector

# A line of the cache.
_LINE_BITS = 64 * 8

# What 4 bits can say.
_CODES = 16

# How LLVM says into which cache something is fetched.
_L1, _L2 = 3, 2


@intrinsic
def borrowed(typing, array):  # noqa: ARG001
    """The same array, which must live on: references to this one are not counted.

    Counting takes an atomic operation for every slice and every call that gets the array.
    """

    def generate(context, builder, signature, arguments):
        return _without_owner(context, builder, signature.return_type, *arguments)._getvalue()

    return array(array), generate


@intrinsic
def at(typing, array, address):  # noqa: ARG001
    """An array like `array` at another address, whose memory belongs to someone else."""

    def generate(context, builder, signature, arguments):
        moved = _without_owner(context, builder, signature.return_type, arguments[0])
        moved.data = builder.inttoptr(arguments[1], moved.data.type)
        return moved._getvalue()

    return array(array, types.int64), generate


@intrinsic
def element(typing, array, index):  # noqa: ARG001
    """The one element of `array` at `index`."""

    def generate(context, builder, signature, arguments):
        return builder.load(pointer(context, builder, signature.args[0], *arguments))

    return array.dtype(array, types.intp), generate


@intrinsic
def line(typing, array):  # noqa: ARG001
    """How many elements of `array` a cache line has."""

    def generate(context, builder, signature, arguments):  # noqa: ARG001
        return ir.IntType(64)(_LINE_BITS // signature.args[0].dtype.bitwidth)

    return types.intp(array), generate


@intrinsic
def load(typing, array, index):  # noqa: ARG001
    """The elements of `array`, float32 or int8, from `index` on."""

    def generate(context, builder, signature, arguments):
        elements = _load(context, builder, signature, arguments)
        if signature.args[0].dtype == types.float32:
            return elements
        return builder.sitofp(builder.sext(elements, INTS), VECTOR)

    if array.dtype in {types.float32, types.int8}:
        return vector(array, types.intp), generate
    return None


@intrinsic
def load_fp8(typing, array, index):  # noqa: ARG001
    """The numbers, of which none is NaN, whose e4m3 bits are in a uint8 `array` from `index` on."""

    def generate(context, builder, signature, arguments):
        # With its sign in all higher bits, a number is that of a float32 but for the exponent's
        # bias, and four bits between its sign and its exponent.
        signed = builder.sext(_load(context, builder, signature, arguments), INTS)
        bits = builder.shl(signed, INTS([20] * LANES))
        bits = builder.and_(bits, INTS([0x87F00000] * LANES))
        return builder.fmul(builder.bitcast(bits, VECTOR), VECTOR([2.0**120] * LANES))

    return vector(array, types.intp), generate


@intrinsic
def load_int4(typing, packed, index, ranges, low, high):  # noqa: ARG001
    """The elements whose codes are in the low halves of the bytes from `index` on, and in the high.

    Their groups have the ranges at `low` and at `high`, see `memory.Int4`.
    """

    def generate(context, builder, signature, arguments):
        codes = builder.zext(_load(context, builder, signature, arguments[:2]), INTS)
        rest = builder.lshr(codes, INTS([4] * LANES))
        elements = []
        for half, group in zip((codes, rest), arguments[3:], strict=True):
            place = pointer(context, builder, signature.args[2], arguments[2], group)
            elements.append(_decoded(builder, half, splatted(builder, builder.load(place))))
        return context.make_tuple(builder, signature.return_type, elements)

    pair = types.UniTuple(vector, 2)
    return pair(packed, types.intp, ranges, types.intp, types.intp), generate


@intrinsic
def spread(typing, array, index):  # noqa: ARG001
    """A vector of the one float32 of `array` at `index` alone."""

    def generate(context, builder, signature, arguments):
        number = builder.load(pointer(context, builder, signature.args[0], *arguments))
        return splatted(builder, number)

    return vector(array, types.intp), generate


@intrinsic
def totals(typing, array, index):  # noqa: ARG001
    """A vector of the totals of the LANES vectors in `array` from `index` on."""

    def generate(context, builder, signature, arguments):
        [array, index], [kind, _] = arguments, signature.args
        vectors = []
        for i in range(LANES):
            start = builder.add(index, ir.IntType(64)(i * LANES))
            vectors.append(_load_at(builder, pointer(context, builder, kind, array, start), FLOAT))
        for evens, odds in _halving():
            vectors = [
                builder.fadd(
                    builder.shuffle_vector(a, b, evens), builder.shuffle_vector(a, b, odds)
                )
                for a, b in zip(vectors[::2], vectors[1::2], strict=True)
            ]
        return vectors[0]

    return vector(array, types.intp), generate


@intrinsic
def store(typing, array, index, value):  # noqa: ARG001
    """Write `value` into a float32 `array`, from `index` on."""

    def generate(context, builder, signature, arguments):
        place = pointer(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], builder.bitcast(place, VECTOR.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), generate


@intrinsic
def prefetch(typing, array, index):  # noqa: ARG001
    """Have the CPU fetch the element of `array` at `index`, which need not be inside it.

    Does nothing where two vectors of the array are more than a line of the cache. Such an array
    passes so fast that what the CPU fetches by itself is enough, and this would be in its way.
    """

    def generate(context, builder, signature, arguments):
        kind = signature.args[0]
        if 2 * LANES * kind.dtype.bitwidth <= _LINE_BITS:
            place = pointer(context, builder, kind, *arguments)
            _prefetch(builder, place, _L1)
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@intrinsic
def prefetch_l2(typing, array, index):  # noqa: ARG001
    """Have the CPU fetch the element of `array` at `index` into its L2, as the L1 is small."""

    def generate(context, builder, signature, arguments):
        place = pointer(context, builder, signature.args[0], *arguments)
        _prefetch(builder, place, _L2)
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


def pointer(context, builder, kind, array, index):
    """To the element at `index` of an array of a `kind`, for an intrinsic's code."""
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index])


def _decoded(builder, codes, ranges):
    """What the last 4 bits of each of `codes` mean in each of `ranges`."""
    scale = builder.bitcast(builder.and_(ranges, INTS([0xFFFF0000] * LANES)), VECTOR)
    least = builder.bitcast(builder.shl(ranges, INTS([16] * LANES)), VECTOR)
    if LANES == _CODES:
        # All that codes can say fits into a register, which is made once for a group.
        every = VECTOR([float(code) for code in range(_CODES)])
        table = fused(builder, every, scale, least)
        kind = ir.FunctionType(VECTOR, [VECTOR, INTS])
        name = "llvm.x86.avx512.permvar.sf.512"
        look_up = cgutils.get_or_insert_function(builder.module, kind, name)
        return builder.call(look_up, [table, codes])
    codes = builder.and_(codes, INTS([_CODES - 1] * LANES))
    return fused(builder, builder.sitofp(codes, VECTOR), scale, least)


def _halving():
    """How two vectors are shuffled twice so that the sum of both has half of the sums of each.

    The last of them leaves the sums in order. Registers are shuffled fastest inside of 4 lanes.
    """
    quads = range(0, LANES, 4)
    low = [lane + q for q in quads for lane in (0, LANES, 1, LANES + 1)]
    yield INTS(low), INTS([lane + 2 for lane in low])
    low = [lane + q for q in quads for lane in (0, 1, LANES, LANES + 1)]
    yield INTS(low), INTS([lane + 2 for lane in low])
    for _ in range(LANES.bit_length() - 3):
        low = [lane + q for q in range(0, 2 * LANES, 8) for lane in range(4)]
        yield INTS(low), INTS([lane + 4 for lane in low])


def _without_owner(context, builder, kind, array):
    """A copy of the structure of an array, that says that nobody owns its memory."""
    copy = context.make_array(kind)(context, builder, array)
    copy.meminfo = cgutils.get_null_value(copy.meminfo.type)
    copy.parent = cgutils.get_null_value(copy.parent.type)
    return copy


def _prefetch(builder, place, level):
    kind = ir.FunctionType(ir.VoidType(), [place.type, INT, INT, INT])
    fetch = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
    builder.call(fetch, [place, INT(0), INT(level), INT(1)])


def _load(context, builder, signature, arguments):
    """LANES elements of the array, of its own dtype."""
    kind = signature.args[0]
    place = pointer(context, builder, kind, *arguments)
    return _load_at(builder, place, context.get_data_type(kind.dtype))


def _load_at(builder, place, element):
    elements = ir.VectorType(element, LANES)
    size = 4 if element == FLOAT else element.width // 8
    return builder.load(builder.bitcast(place, elements.as_pointer()), typ=elements, align=size)
