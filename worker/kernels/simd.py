"""Vectors of float32 for compiled code: a type of numba, and what can be done with it.

A vector has `LANES` elements, as many as the registers of this CPU hold, and stays in a register
while compiled code computes with it. Arrays are contiguous, and an index counts their elements from
the first as if they had one dimension; no index is checked.
"""

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

LANES = 16 if llvm.get_host_cpu_features().get("avx512f") else 8

_FLOAT, _INT = ir.FloatType(), ir.IntType(32)
_VECTOR, _INTS = ir.VectorType(_FLOAT, LANES), ir.VectorType(_INT, LANES)


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
def store(typing, array, index, value):  # noqa: ARG001
    """Write `value` into a float32 `array`, from `index` on."""

    def generate(context, builder, signature, arguments):
        place = _place(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], builder.bitcast(place, _VECTOR.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), generate


@intrinsic
def splat(typing, number):  # noqa: ARG001
    """A vector of the float32 `number` alone."""

    def generate(context, builder, signature, arguments):  # noqa: ARG001
        one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), arguments[0], _INT(0))
        return builder.shuffle_vector(one, one, ir.Constant(_INTS, [0] * LANES))

    return vector(types.float32), generate


@intrinsic
def fma(typing, a, b, c):  # noqa: ARG001
    """A * b + c."""
    return vector(vector, vector, vector), _operation("llvm.fma", 3)


@intrinsic
def add(typing, a, b):  # noqa: ARG001
    """A + b."""

    def generate(context, builder, signature, arguments):  # noqa: ARG001
        return builder.fadd(*arguments)

    return vector(vector, vector), generate


@intrinsic
def mul(typing, a, b):  # noqa: ARG001
    """A * b."""

    def generate(context, builder, signature, arguments):  # noqa: ARG001
        return builder.fmul(*arguments)

    return vector(vector, vector), generate


@intrinsic
def total(typing, a):  # noqa: ARG001
    """The sum of the elements of `a`, in any order."""

    def generate(context, builder, signature, arguments):  # noqa: ARG001
        kind = ir.FunctionType(_FLOAT, [_FLOAT, _VECTOR])
        name = f"llvm.vector.reduce.fadd.v{LANES}f32"
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        return builder.call(function, [_FLOAT(0), *arguments], fastmath=("reassoc",))

    return types.float32(vector), generate


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
    elements = ir.VectorType(context.get_data_type(kind.dtype), LANES)
    pointer = builder.bitcast(place, elements.as_pointer())
    return builder.load(pointer, typ=elements, align=kind.dtype.bitwidth // 8)
