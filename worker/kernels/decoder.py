"""A stack of decoder layers as one call, in which threads go from one phase to the next together.

A layer is: RMS norm, rotary attention over paged KV, RMS norm, gated SiLU; each half is residual.
The weights of a norm are in those of the linear layers after it, so that of a norm only a factor
for each row is left.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from worker.kernels import memory
from worker.kernels.attention import attend, merge
from worker.kernels.panels import Linear
from worker.kernels.product import ADDED, GATED, PLAIN, multiply, whole
from worker.kernels.sync import take, wait

PHASES = 5
_PROJECT, _ATTEND, _OUTPUT, _GATE, _DOWN = range(PHASES)

_compiled = partial(njit, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})()


class Layers(NamedTuple):
    """The weights of all layers of a model.

    Args:
        project: hidden rows to queries, keys and values.
        output: attended rows to hidden ones.
        gate: hidden rows to gates and what they let through.
        down: that to hidden rows.
        query_norms: [layers, head_dim] float32, or [layers, 0] when queries are not normed.
        key_norms: like them.
        epsilon: of all norms.
        scale: of the logits of attention.
    """

    project: Linear
    output: Linear
    gate: Linear
    down: Linear
    query_norms: NDArray[np.float32]
    key_norms: NDArray[np.float32]
    epsilon: float
    scale: float


class Rows(NamedTuple):
    """A step's rows, as many as `product.ROWS` divides; all float32.

    Args:
        hidden: [rows, hidden size and more]; comes in and goes out.
        projected: [rows, heads * head_dim and more], of queries, keys and values.
        attended: [rows, query heads * head_dim].
        gated: [rows, intermediate size and more].
        cosines: [rows, head_dim], of the rows' positions.
        sines: like them.
        factors: [threads, rows], a place for those of norms.
    """

    hidden: NDArray[np.float32]
    projected: NDArray[np.float32]
    attended: NDArray[np.float32]
    gated: NDArray[np.float32]
    cosines: NDArray[np.float32]
    sines: NDArray[np.float32]
    factors: NDArray[np.float32]

    @classmethod
    def of(
        cls,
        embedded: NDArray[np.float32],
        cosines: NDArray[np.float32],
        sines: NDArray[np.float32],
        layers: Layers,
        threads: int,
    ) -> "Rows":
        """The rows of `embedded` tokens [tokens, hidden size] before the first layer."""
        tokens, size = embedded.shape
        rows = cls(
            *(
                np.zeros((whole(tokens), width), np.float32)
                for width in (
                    layers.output.biases.shape[1],
                    layers.project.biases.shape[1],
                    layers.output.panels.shape[2],
                    layers.gate.biases.shape[1] // 2,
                )
            ),
            cosines,
            sines,
            np.zeros((threads, whole(tokens)), np.float32),
        )
        rows.hidden[:tokens, :size] = embedded
        return rows


class Team(NamedTuple):
    """How the threads of a call find each other; all int64 and zero at first.

    Args:
        joined: [1].
        barrier: [2].
        taken: [layers, PHASES, 1].
    """

    joined: NDArray[np.int64]
    barrier: NDArray[np.int64]
    taken: NDArray[np.int64]

    @classmethod
    def of(cls, layers: int) -> "Team":
        """For a call with so many layers."""
        return cls(
            np.zeros(1, np.int64), np.zeros(2, np.int64), np.zeros((layers, PHASES, 1), np.int64)
        )


@_compiled
def decode(layers, first, last, rows, step, slots, tasks, parts, keys, values, places, team):
    """Bring `rows` through the layers from `first` to `last`; each thread calls it alike.

    Args:
        layers: `Layers`.
        first: of them.
        last: not included.
        rows: `Rows`.
        step: `attention.Step`; its output is `rows.attended`.
        slots: [tokens] int64; -1: the KV of this token is there already.
        tasks: see `attention.attend`.
        parts: see `attention.attend`.
        keys: a `Memory`, the keys of any layer.
        values: a `Memory`, the values of any layer.
        places: the addresses of the arrays of the keys, and of the values, of each layer from
            `first` to `last`: [layers, arrays] int64 each.
        team: `Team`.
    """
    threads, thread = len(rows.factors), take(team.joined, 0)
    tokens, factors = len(step.queries), rows.factors[thread]
    ones = np.ones(len(factors), np.float32)
    size = layers.project.panels.shape[2]
    for layer in range(first, last):
        taken = team.taken[layer - first]
        its_keys = memory.at(keys, places[0][layer - first])
        its_values = memory.at(values, places[1][layer - first])

        _norms(rows.hidden, tokens, size, layers.epsilon, factors)
        multiply(
            layers.project, layer, PLAIN, tokens, rows.hidden, factors, rows.projected,
            taken[_PROJECT],
        )  # fmt: skip
        wait(team.barrier, threads)
        for token in range(thread, tokens, threads):
            _enter(layers, layer, token, rows, step, slots, its_keys, its_values)
        wait(team.barrier, threads)
        attend(step, tasks, taken[_ATTEND], its_keys, its_values, layers.scale, parts)
        wait(team.barrier, threads)
        if thread == 0:
            merge(step, tasks, parts)
        wait(team.barrier, threads)
        multiply(
            layers.output, layer, ADDED, tokens, rows.attended, ones, rows.hidden, taken[_OUTPUT]
        )
        wait(team.barrier, threads)
        _norms(rows.hidden, tokens, size, layers.epsilon, factors)
        multiply(layers.gate, layer, GATED, tokens, rows.hidden, factors, rows.gated, taken[_GATE])
        wait(team.barrier, threads)
        multiply(layers.down, layer, ADDED, tokens, rows.gated, ones, rows.hidden, taken[_DOWN])
        wait(team.barrier, threads)


@_compiled
def _norms(rows, count, size, epsilon, factors):
    """Into `factors`, what an RMS norm multiplies each of `count` rows with."""
    for row in range(count):
        factors[row] = _norm(rows[row, :size], epsilon)


@_compiled
def _norm(row, epsilon):
    total = np.float32(0)
    for i in range(len(row)):
        total += row[i] * row[i]
    return np.float32(1 / np.sqrt(total / len(row) + epsilon))


@_compiled
def _enter(layers, layer, token, rows, step, slots, keys, values):
    """Take a token's queries, and store its keys and values."""
    _, kv_heads, group, dim = step.queries.shape
    cosines, sines = rows.cosines[token], rows.sines[token]
    row = rows.projected[token]
    for head in range(kv_heads * group):
        query = row[head * dim : (head + 1) * dim]
        turned = step.queries[token, head // group, head % group]
        _turn(query, layers.query_norms[layer], layers.epsilon, cosines, sines, turned)
        memory.rotate(keys, turned)
    slot = slots[token]
    if slot < 0:
        return
    turned = np.empty(dim, np.float32)
    for head in range(kv_heads):
        start = (kv_heads * group + head) * dim
        key = row[start : start + dim]
        value = row[start + kv_heads * dim : start + (kv_heads + 1) * dim]
        _turn(key, layers.key_norms[layer], layers.epsilon, cosines, sines, turned)
        memory.put(keys, values, slot, head, turned, value)


@_compiled
def _turn(row, norms, epsilon, cosines, sines, turned):
    """Into `turned`, `row` normed where there are `norms`, then turned to its position.

    Element i turns with element i + head_dim / 2.
    """
    half = len(row) // 2
    if len(norms):
        factor = _norm(row, epsilon)
        for i in range(len(row)):
            row[i] *= factor * norms[i]
    for i in range(half):
        low, high = row[i], row[i + half]
        turned[i] = low * cosines[i] - high * sines[i]
        turned[i + half] = high * cosines[i + half] + low * sines[i + half]
