"""How threads in compiled code share work and wait for each other."""

from functools import partial

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from worker.kernels.access import pointer

# So often a waiting thread looks before it lets others have its core.
_LOOKS = 4096


@intrinsic
def take(typing, counters, index):  # noqa: ARG001
    """Add 1 to an int64 of `counters`, as no two threads at once; what it was before."""

    def generate(context, builder, signature, arguments):
        place = pointer(context, builder, signature.args[0], *arguments)
        return builder.atomic_rmw("add", place, ir.IntType(64)(1), "acq_rel")

    return types.int64(counters, types.intp), generate


@partial(njit, nogil=True)
def wait(barrier, threads):
    """Wait until all `threads` are here; what each wrote before, all can read after.

    Args:
        barrier: [2] int64, zeros at first; good for any number of waits.
        threads: how many call this.
    """
    generation = _look(barrier, 1)
    if take(barrier, 0) == threads - 1:
        barrier[0] = 0
        take(barrier, 1)
        return
    looks = 0
    while _look(barrier, 1) == generation:
        looks += 1
        if looks > _LOOKS:
            _yield()


@intrinsic
def _look(typing, counters, index):  # noqa: ARG001
    """An int64 of `counters`, as it is now."""

    def generate(context, builder, signature, arguments):
        place = pointer(context, builder, signature.args[0], *arguments)
        return builder.load_atomic(place, "acquire", 8)

    return types.int64(counters, types.intp), generate


@intrinsic
def _yield(typing):  # noqa: ARG001
    """Let another thread have this core, if one wants it."""

    def generate(context, builder, signature, arguments):  # noqa: ARG001
        kind = ir.FunctionType(ir.IntType(32), [])
        builder.call(ir.Function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), generate
