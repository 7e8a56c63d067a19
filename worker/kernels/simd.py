"""Vectors of float32 for compiled code: a type of numba, and what can be done with it.

A vector has `LANES` elements, as many as the registers of this CPU hold, and stays in a register
while compiled code computes with it. Arrays are contiguous, and an index counts their elements from
the first as if they had one dimension; no index is checked.
"""

from typing import Any

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

config: Any = numba.config


def _has(feature):
    """Whether the CPU that numba compiles for has a feature."""
    if config.CPU_FEATURES is not None:
        return f"+{feature}" in config.CPU_FEATURES.split(",")
    return llvm.get_host_cpu_features().get(feature, False)


LANES = 16 if _has("avx512f") else 8

_FLOAT, _INT = ir.FloatType(), ir.IntType(32)
_VECTOR, _INTS = ir.VectorType(_FLOAT, LANES), ir.VectorType(_INT, LANES)

# A line of the cache.
_LINE_BITS = 64 * 8

# How LLVM says into which cache something is fetched.
_L1, _L2 = 3, 2

# Of a polynomial that is 2 ** x between -1/2 and 1/2, the highest power first.
_EXP2 = (1.5403530e-4, 1.3333558e-3, 9.6181291e-3, 5.5504109e-2, 2.4022651e-1, 6.9314718e-1, 1.0)


class VectorType(types.Type):
    """The type of a vector."""

    def __init__(self):
        super().__init__(name=f"Vector({LANES})")


vector = VectorType()


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _VECTOR)


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
def load(typing, array, index):  # noqa: ARG001
    """The elements of `array`, float32 or int8, from `index` on."""

    def generate(context, builder, signature, arguments):
        elements = _load(context, builder, signature, arguments)
        if signature.args[0].dtype == types.float32:
            return elements
        return builder.sitofp(builder.sext(elements, _INTS), _VECTOR)

    if array.dtype in {types.float32, types.int8}:
        return vector(array, types.intp), generate
    return None


@intrinsic
def load_fp8(typing, array, index):  # noqa: ARG001
    """The numbers, of which none is NaN, whose e4m3 bits are in a uint8 `array` from `index` on."""

    def generate(context, builder, signature, arguments):
        # With its sign in all higher bits, a number is that of a float32 but for the exponent's
        # bias, and four bits between its sign and its exponent.
        signed = builder.sext(_load(context, builder, signature, arguments), _INTS)
        bits = builder.shl(signed, _INTS([20] * LANES))
        bits = builder.and_(bits, _INTS([0x87F00000] * LANES))
        return builder.fmul(builder.bitcast(bits, _VECTOR), _VECTOR([2.0**120] * LANES))

    return vector(array, types.intp), generate


@intrinsic
def load_nibbles(typing, array, index):  # noqa: ARG001
    """The low halves of the bytes of a uint8 `array` from `index` on, and their high halves."""

    def generate(context, builder, signature, arguments):
        both = builder.zext(_load(context, builder, signature, arguments), _INTS)
        low = builder.sitofp(builder.and_(both, _INTS([15] * LANES)), _VECTOR)
        high = builder.sitofp(builder.lshr(both, _INTS([4] * LANES)), _VECTOR)
        return context.make_tuple(builder, signature.return_type, (low, high))

    return types.UniTuple(vector, 2)(array, types.intp), generate


@intrinsic
def element(typing, array, index):  # noqa: ARG001
    """The one element of `array` at `index`."""

    def generate(context, builder, signature, arguments):
        return builder.load(_place(context, builder, signature.args[0], *arguments))

    return array.dtype(array, types.intp), generate


@intrinsic
def line(typing, array):  # noqa: ARG001
    """How many elements of `array` a cache line has."""

    def generate(context, builder, signature, arguments):  # noqa: ARG001
        return ir.IntType(64)(_LINE_BITS // signature.args[0].dtype.bitwidth)

    return types.intp(array), generate


@intrinsic
def prefetch_l2(typing, array, index):  # noqa: ARG001
    """Have the CPU fetch the element of `array` at `index` into its L2, as the L1 is small."""

    def generate(context, builder, signature, arguments):
        place = _place(context, builder, signature.args[0], *arguments)
        _prefetch(builder, place, _L2)
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@intrinsic
def store(typing, array, index, value):  # noqa: ARG001
    """Write `value` into a float32 `array`, from `index` on."""

    def generate(context, builder, signature, arguments):
        place = _place(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], builder.bitcast(place, _VECTOR.as_pointer()), align=4)
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
            place = _place(context, builder, kind, *arguments)
            _prefetch(builder, place, _L1)
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@intrinsic
def splat(typing, number):  # noqa: ARG001
    """A vector of the float32 `number` alone."""

    def generate(context, builder, signature, arguments):  # noqa: ARG001
        return _splat(builder, *arguments)

    return vector(types.float32), generate


@intrinsic
def spread(typing, array, index):  # noqa: ARG001
    """A vector of the one float32 of `array` at `index` alone."""

    def generate(context, builder, signature, arguments):
        number = builder.load(_place(context, builder, signature.args[0], *arguments))
        return _splat(builder, number)

    return vector(array, types.intp), generate


@intrinsic
def spread_bfloat16(typing, array, index):  # noqa: ARG001
    """A vector of the one bfloat16 alone whose bits are in a uint16 `array` at `index`."""

    def generate(context, builder, signature, arguments):
        bits = builder.load(_place(context, builder, signature.args[0], *arguments))
        halves = ir.VectorType(bits.type, 2 * LANES)
        one = builder.insert_element(ir.Constant(halves, ir.Undefined), bits, _INT(0))
        zeros = ir.Constant(ir.VectorType(_INT, 2 * LANES), [0] * 2 * LANES)
        words = builder.bitcast(builder.shuffle_vector(one, one, zeros), _INTS)
        return builder.bitcast(builder.shl(words, _INTS([16] * LANES)), _VECTOR)

    return vector(array, types.intp), generate


@intrinsic
def fma(typing, a, b, c):  # noqa: ARG001
    """A * b + c."""
    return vector(vector, vector, vector), _operation("llvm.fma", 3)


@intrinsic
def add(typing, a, b):  # noqa: ARG001
    """Gives a + b."""
    return vector(vector, vector), _elementwise("fadd")


@intrinsic
def sub(typing, a, b):  # noqa: ARG001
    """Gives a - b."""
    return vector(vector, vector), _elementwise("fsub")


@intrinsic
def mul(typing, a, b):  # noqa: ARG001
    """Gives a * b."""
    return vector(vector, vector), _elementwise("fmul")


@intrinsic
def div(typing, a, b):  # noqa: ARG001
    """Gives a / b."""
    return vector(vector, vector), _elementwise("fdiv")


@intrinsic
def smaller(typing, a, b):  # noqa: ARG001
    """Gives a where it is not above b, NaN included, else b."""

    def generate(context, builder, signature, arguments):  # noqa: ARG001
        above = builder.fcmp_ordered(">", *arguments)
        return builder.select(above, *reversed(arguments))

    return vector(vector, vector), generate


@intrinsic
def larger(typing, a, b):  # noqa: ARG001
    """Gives a where it is above b, else b."""

    def generate(context, builder, signature, arguments):  # noqa: ARG001
        return _larger(builder, *arguments)

    return vector(vector, vector), generate


@intrinsic
def first(typing, count, a, b):  # noqa: ARG001
    """The first `count` elements of `a`, which may be none or all, then those of `b`."""

    def generate(context, builder, signature, arguments):  # noqa: ARG001
        count = builder.trunc(arguments[0], _INT)
        one = builder.insert_element(ir.Constant(_INTS, ir.Undefined), count, _INT(0))
        counts = builder.shuffle_vector(one, one, _INTS([0] * LANES))
        taken = builder.icmp_signed("<", _INTS(list(range(LANES))), counts)
        return builder.select(taken, *arguments[1:])

    return vector(types.intp, vector, vector), generate


@intrinsic
def exp2(typing, a):  # noqa: ARG001
    """2 ** a to 2e-7 of itself, for elements up to 126; 0 of what is below -126, NaN of NaN."""

    def generate(context, builder, signature, arguments):  # noqa: ARG001
        [x] = arguments
        # NOTE: adding a number so large rounds to an integer, whose low bits then are those of
        # the mantissa.
        rounder = _VECTOR([1.5 * 2**23] * LANES)
        rounded = builder.fadd(x, rounder)
        fraction = builder.fsub(x, builder.fsub(rounded, rounder))
        power = _VECTOR([_EXP2[0]] * LANES)
        for coefficient in _EXP2[1:]:
            power = builder.fmul(power, fraction, flags=("contract",))
            power = builder.fadd(power, _VECTOR([coefficient] * LANES), flags=("contract",))
        exponent = builder.shl(builder.bitcast(rounded, _INTS), _INTS([23] * LANES))
        bits = builder.add(builder.bitcast(power, _INTS), exponent)
        low = builder.fcmp_ordered("<", x, _VECTOR([-126.0] * LANES))
        return builder.select(low, _VECTOR([0.0] * LANES), builder.bitcast(bits, _VECTOR))

    return vector(vector), generate


@intrinsic
def total(typing, a):  # noqa: ARG001
    """The sum of the elements of `a`, in any order."""

    def generate(context, builder, signature, arguments):  # noqa: ARG001
        kind = ir.FunctionType(_FLOAT, [_FLOAT, _VECTOR])
        name = f"llvm.vector.reduce.fadd.v{LANES}f32"
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        return builder.call(function, [_FLOAT(0), *arguments], fastmath=("reassoc",))

    return types.float32(vector), generate


@intrinsic
def largest(typing, a):  # noqa: ARG001
    """The largest element of `a`."""

    def generate(context, builder, signature, arguments):  # noqa: ARG001
        [a] = arguments
        width = LANES // 2
        while width:
            other = builder.shuffle_vector(a, a, _INTS([lane ^ width for lane in range(LANES)]))
            a, width = _larger(builder, a, other), width // 2
        return builder.extract_element(a, _INT(0))

    return types.float32(vector), generate


@intrinsic
def totals(typing, array, index):  # noqa: ARG001
    """A vector of the totals of the LANES vectors in `array` from `index` on."""

    def generate(context, builder, signature, arguments):
        [array, index], [kind, _] = arguments, signature.args
        vectors = []
        for i in range(LANES):
            start = builder.add(index, ir.IntType(64)(i * LANES))
            vectors.append(_load_at(builder, _place(context, builder, kind, array, start), _FLOAT))
        for evens, odds in _halving():
            vectors = [
                builder.fadd(
                    builder.shuffle_vector(a, b, evens), builder.shuffle_vector(a, b, odds)
                )
                for a, b in zip(vectors[::2], vectors[1::2], strict=True)
            ]
        return vectors[0]

    return vector(array, types.intp), generate


def _halving():
    """How two vectors are shuffled twice so that the sum of both has half of the sums of each.

    The last of them leaves the sums in order. Registers are shuffled fastest inside of 4 lanes.
    """
    quads = range(0, LANES, 4)
    low = [lane + q for q in quads for lane in (0, LANES, 1, LANES + 1)]
    yield _INTS(low), _INTS([lane + 2 for lane in low])
    low = [lane + q for q in quads for lane in (0, 1, LANES, LANES + 1)]
    yield _INTS(low), _INTS([lane + 2 for lane in low])
    for _ in range(LANES.bit_length() - 3):
        low = [lane + q for q in range(0, 2 * LANES, 8) for lane in range(4)]
        yield _INTS(low), _INTS([lane + 4 for lane in low])


def _larger(builder, a, b):
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _without_owner(context, builder, kind, array):
    """A copy of the structure of an array, that says that nobody owns its memory."""
    copy = context.make_array(kind)(context, builder, array)
    copy.meminfo = cgutils.get_null_value(copy.meminfo.type)
    copy.parent = cgutils.get_null_value(copy.parent.type)
    return copy


def _prefetch(builder, place, level):
    kind = ir.FunctionType(ir.VoidType(), [place.type, _INT, _INT, _INT])
    fetch = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
    builder.call(fetch, [place, _INT(0), _INT(level), _INT(1)])


def _splat(builder, number):
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), number, _INT(0))
    return builder.shuffle_vector(one, one, ir.Constant(_INTS, [0] * LANES))


def _elementwise(operation):
    def generate(context, builder, signature, arguments):  # noqa: ARG001
        return getattr(builder, operation)(*arguments)

    return generate


def _operation(name, count):
    """Code for the intrinsic `name` of LLVM over `count` vectors."""

    def generate(context, builder, signature, arguments):  # noqa: ARG001
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * count)
        function = cgutils.get_or_insert_function(builder.module, kind, f"{name}.v{LANES}f32")
        return builder.call(function, arguments)

    return generate


def _place(context, builder, kind, array, index):
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index])


def _load(context, builder, signature, arguments):
    """LANES elements of the array, of its own dtype."""
    kind = signature.args[0]
    place = _place(context, builder, kind, *arguments)
    return _load_at(builder, place, context.get_data_type(kind.dtype))


def _load_at(builder, place, element):
    elements = ir.VectorType(element, LANES)
    size = 4 if element == _FLOAT else element.width // 8
    return builder.load(builder.bitcast(place, elements.as_pointer()), typ=elements, align=size)
