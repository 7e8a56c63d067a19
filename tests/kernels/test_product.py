"""Products over panels are those of numpy in float64, however the threads share them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from worker.kernels.panels import GROUP, Linear, gated, gated_outputs
from worker.kernels.product import ADDED, GATED, PLAIN, multiply, whole
from worker.kernels.team import together

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

Floats = NDArray[np.float32]

sizes = st.integers(1, 100)
seeds = st.integers(0, 2**32 - 1)
threads = st.sampled_from([1, 2, 5])


def random(rng: np.random.Generator, *shape: int) -> Floats:
    return rng.standard_normal(shape, np.float32)


def uneven(rng: np.random.Generator, outputs: int, inputs: int) -> Floats:
    """Weights whose magnitudes differ much, from output to output and along the inputs; some 0."""
    scales = np.exp(3 * random(rng, outputs, 1) + 3 * random(rng, 1, inputs))
    weight = random(rng, outputs, inputs) * scales.astype(np.float32)
    weight[rng.random(outputs) < 0.2] = 0
    return weight


def product(
    linear: Linear, layer: int, kind: int, rows: Floats, factors: Floats, before: Floats, count: int
) -> Floats:
    """All outputs of `rows`, in arrays of whole size whose other elements are broken."""
    room = whole(len(rows))
    inputs = np.full((room, rows.shape[1] + 3), np.nan, np.float32)
    inputs[: len(rows), : rows.shape[1]] = rows
    worth = np.ones(room, np.float32)
    worth[: len(rows)] = factors
    width = linear.biases.shape[1] // (2 if kind == GATED else 1)
    outputs = np.full((room, width + 2), np.nan, np.float32)
    outputs[: len(rows), : before.shape[1]] = before
    taken = np.zeros(1, np.int64)
    together(count, multiply, linear, layer, kind, len(rows), inputs, worth, outputs, taken)
    assert np.isnan(outputs[:, width:]).all()
    return outputs[: len(rows), : before.shape[1]]


@settings(deadline=None, max_examples=60)
@given(rows=st.integers(1, 300), inputs=sizes, outputs=sizes, seed=seeds, count=threads)
def test_products_equal_float64(
    rows: int, inputs: int, outputs: int, seed: int, count: int
) -> None:
    rng = np.random.default_rng(seed)
    weight, bias = random(rng, outputs, inputs), random(rng, outputs)
    linear = Linear.zeros(2, outputs, inputs)
    linear.put(1, weight, bias)
    x, factors, before = random(rng, rows, inputs), random(rng, rows), random(rng, rows, outputs)
    expected = (x.astype(np.float64) @ weight.T) * factors[:, None] + bias
    for kind, found in ((PLAIN, expected), (ADDED, expected + before)):
        result = product(linear, 1, kind, x, factors, before, count)
        np.testing.assert_allclose(result, found, atol=1e-4, rtol=1e-4)


@settings(deadline=None, max_examples=40)
@given(rows=st.integers(1, 20), inputs=sizes, outputs=sizes, seed=seeds, count=threads)
def test_gates_let_through_what_they_should(
    rows: int, inputs: int, outputs: int, seed: int, count: int
) -> None:
    rng = np.random.default_rng(seed)
    gate, through = random(rng, outputs, inputs), random(rng, outputs, inputs)
    biases = random(rng, outputs), random(rng, outputs)
    linear = Linear.zeros(1, gated_outputs(outputs), inputs)
    linear.put(0, gated(gate, through), gated(*biases))
    x, factors = random(rng, rows, inputs) * 3, random(rng, rows)
    opened, passed = (
        (x.astype(np.float64) @ weight.T) * factors[:, None] + bias
        for weight, bias in zip((gate, through), biases, strict=True)
    )
    expected = opened / (1 + np.exp(-opened)) * passed
    result = product(linear, 0, GATED, x, factors, np.zeros((rows, outputs), np.float32), count)
    np.testing.assert_allclose(result, expected, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("gate", [-1e30, -200.0, -88.0, 0.0, 88.0, 1e30, np.inf, np.nan])
def test_a_gate_of_any_size_is_its_silu(gate: float) -> None:
    weights, biases = np.float32([[[1]], [[0]]]), np.float32([[0], [1]])
    linear = Linear.zeros(1, gated_outputs(1), 1)
    linear.put(0, gated(*weights), gated(*biases))
    rows, factors = np.full((1, 1), gate, np.float32), np.ones(1, np.float32)
    result = product(linear, 0, GATED, rows, factors, np.zeros((1, 1), np.float32), 1)
    expected = gate if gate > 0 or np.isnan(gate) else 0.0
    if np.isinf(gate):  # the other half is 0 * inf
        expected = np.nan
    np.testing.assert_allclose(result, [[expected]], atol=1e-7, rtol=1e-5)


@given(inputs=sizes, outputs=sizes, seed=seeds)
def test_rounded_weights_are_off_by_half_a_step_of_their_group(
    inputs: int, outputs: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    weight = uneven(rng, outputs, inputs)
    linear = Linear.zeros(2, outputs, inputs)
    linear.put(1, weight, np.zeros(outputs, np.float32))
    rounded = linear.rounded()
    assert rounded.nbytes < linear.nbytes
    kept = rounded.rows(1, np.arange(outputs))
    for start in range(0, inputs, GROUP):
        group = slice(start, start + GROUP)
        step = np.abs(weight[:, group]).max(axis=1, keepdims=True) / 127
        assert (np.abs(kept - weight)[:, group] <= step * 0.501).all()


@settings(deadline=None, max_examples=60)
@given(
    rows=st.one_of(st.integers(1, 12), st.integers(255, 300)),
    inputs=sizes,
    outputs=sizes,
    seed=seeds,
    count=threads,
)
def test_products_with_rounded_weights_are_those_of_the_weights_as_kept(
    rows: int, inputs: int, outputs: int, seed: int, count: int
) -> None:
    rng = np.random.default_rng(seed)
    bias = random(rng, outputs)
    linear = Linear.zeros(2, outputs, inputs)
    linear.put(1, uneven(rng, outputs, inputs), bias)
    rounded = linear.rounded()
    kept = rounded.rows(1, np.arange(outputs)).astype(np.float64)
    x, factors, before = random(rng, rows, inputs), random(rng, rows), random(rng, rows, outputs)
    expected = (x @ kept.T) * factors[:, None] + bias
    # Each product may be off by the rounding of its terms, however they cancel out.
    room = 1e-5 + 1e-5 * ((np.abs(x) @ np.abs(kept).T) * np.abs(factors)[:, None] + np.abs(bias))
    for kind, found in ((PLAIN, expected), (ADDED, expected + before)):
        result = product(rounded, 1, kind, x, factors, before, count)
        assert (np.abs(result - found) <= room).all()


@pytest.mark.parametrize("rows", [1, 2, 3, 9])
def test_rounded_gates_let_through_what_they_should(rows: int) -> None:
    rng = np.random.default_rng(rows)
    gate, through, bias = random(rng, 40, 70), random(rng, 40, 70), np.zeros(40, np.float32)
    linear = Linear.zeros(1, gated_outputs(40), 70)
    linear.put(0, gated(gate, through), gated(bias, bias))
    x, ones = random(rng, rows, 70), np.ones(rows, np.float32)
    opened, passed = x @ gate.T, x @ through.T
    expected = opened / (1 + np.exp(-opened)) * passed
    found = product(linear.rounded(), 0, GATED, x, ones, np.zeros((rows, 40), np.float32), 2)
    assert np.linalg.norm(found - expected) < 0.02 * np.linalg.norm(expected)


@given(inputs=sizes, outputs=sizes, seed=seeds)
def test_rows_are_the_weights_that_were_put(inputs: int, outputs: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weight = random(rng, outputs, inputs)
    linear = Linear.zeros(1, outputs, inputs)
    linear.put(0, weight, np.zeros(outputs, np.float32))
    some = rng.integers(0, outputs, 7)
    np.testing.assert_array_equal(linear.rows(0, some), weight[some])
