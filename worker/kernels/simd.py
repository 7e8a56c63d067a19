"""Vectors of float32 for compiled code: a type of numba, and what is computed with it.

A vector has `LANES` elements, as many as the registers of this CPU hold, and stays in a register
while compiled code computes with it. How it comes from memory and goes there is in `access`.
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

FLOAT, INT = ir.FloatType(), ir.IntType(32)
VECTOR, INTS = ir.VectorType(FLOAT, LANES), ir.VectorType(INT, LANES)

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
        super().__init__(manager, kind, VECTOR)


@intrinsic
def splat(typing, number):  # noqa: ARG001
    """A vector of the float32 `number` alone."""

    def generate(context, builder, signature, arguments):  # noqa: ARG001
        return splatted(builder, *arguments)

    return vector(types.float32), generate


@intrinsic
def fma(typing, a, b, c):  # noqa: ARG001
    """A * b + c."""

    def generate(context, builder, signature, arguments):  # noqa: ARG001
        return fused(builder, *arguments)

    return vector(vector, vector, vector), generate


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
        counts = splatted(builder, builder.trunc(arguments[0], INT))
        taken = builder.icmp_signed("<", INTS(list(range(LANES))), counts)
        return builder.select(taken, *arguments[1:])

    return vector(types.intp, vector, vector), generate


@intrinsic
def exp2(typing, a):  # noqa: ARG001
    """2 ** a to 2e-7 of itself, for elements up to 126; 0 of what is below -126, NaN of NaN."""

    def generate(context, builder, signature, arguments):  # noqa: ARG001
        [x] = arguments
        # NOTE: adding a number so large rounds to an integer, whose low bits then are those of
        # the mantissa.
        rounder = VECTOR([1.5 * 2**23] * LANES)
        rounded = builder.fadd(x, rounder)
        fraction = builder.fsub(x, builder.fsub(rounded, rounder))
        power = VECTOR([_EXP2[0]] * LANES)
        for coefficient in _EXP2[1:]:
            power = builder.fmul(power, fraction, flags=("contract",))
            power = builder.fadd(power, VECTOR([coefficient] * LANES), flags=("contract",))
        exponent = builder.shl(builder.bitcast(rounded, INTS), INTS([23] * LANES))
        bits = builder.add(builder.bitcast(power, INTS), exponent)
        low = builder.fcmp_ordered("<", x, VECTOR([-126.0] * LANES))
        return builder.select(low, VECTOR([0.0] * LANES), builder.bitcast(bits, VECTOR))

    return vector(vector), generate


@intrinsic
def total(typing, a):  # noqa: ARG001
    """The sum of the elements of `a`, in any order."""

    def generate(context, builder, signature, arguments):  # noqa: ARG001
        kind = ir.FunctionType(FLOAT, [FLOAT, VECTOR])
        name = f"llvm.vector.reduce.fadd.v{LANES}f32"
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        return builder.call(function, [FLOAT(0), *arguments], fastmath=("reassoc",))

    return types.float32(vector), generate


@intrinsic
def largest(typing, a):  # noqa: ARG001
    """The largest element of `a`."""

    def generate(context, builder, signature, arguments):  # noqa: ARG001
        [a] = arguments
        width = LANES // 2
        while width:
            other = builder.shuffle_vector(a, a, INTS([lane ^ width for lane in range(LANES)]))
            a, width = _larger(builder, a, other), width // 2
        return builder.extract_element(a, INT(0))

    return types.float32(vector), generate


def _larger(builder, a, b):
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def splatted(builder, number):
    """A vector of a number alone, float32 or int32, for an intrinsic's code."""
    kind = ir.VectorType(number.type, LANES)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), number, INT(0))
    return builder.shuffle_vector(one, one, ir.Constant(INTS, [0] * LANES))


def fused(builder, a, b, c):
    """A * b + c of vectors, for an intrinsic's code."""
    kind = ir.FunctionType(VECTOR, [VECTOR] * 3)
    return builder.call(
        cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32"), [a, b, c]
    )


def _elementwise(operation):
    def generate(context, builder, signature, arguments):  # noqa: ARG001
        return getattr(builder, operation)(*arguments)

    return generate
