"""Sampling is a function of (logits, seed, position), and follows the distribution it is given."""

import math
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from worker.engine.request import SamplingParams
from worker.engine.sampler import Logits, largest_by_numpy, largest_by_torch, uniform

logits_lists = st.lists(st.floats(-30, 30, allow_nan=False, width=32), min_size=1, max_size=40).map(
    lambda values: torch.tensor(values, dtype=torch.float32)
)
seeds = st.integers(0, 2**64 - 1)
positions = st.integers(0, 2**32)
params = st.builds(
    SamplingParams,
    temperature=st.floats(1e-30, 100),
    top_p=st.floats(1e-6, 1),
    top_k=st.integers(0, 50),
    seed=seeds,
)


def sample(logits: torch.Tensor, params: SamplingParams, position: int) -> int:
    return Logits(logits[None]).sample(0, params, position)


def naive(logits: torch.Tensor, params: SamplingParams, position: int) -> set[int]:
    """Every token that `sample` may give: a slow walk, with room for the last bit of rounding."""
    values = [value - max(logits.tolist()) for value in logits.tolist()]
    weights = [math.exp(value / params.temperature) for value in values]
    ranked = sorted(range(len(values)), key=lambda i: (-values[i], i))
    cut = params.top_p < 1 or 0 < params.top_k < len(values)
    order = ranked if cut else list(range(len(values)))
    order = order[: params.top_k] if params.top_k else order
    total = sum(weights[i] for i in order)
    answers = set()
    for slack in (-1e-9, 0, 1e-9):
        kept, mass = [], 0.0
        for i in order:
            kept.append(i)
            mass += weights[i] / total
            if cut and mass >= params.top_p + slack:
                break
        target = uniform(params.seed, position) * mass
        for offset in (-1e-9, 0, 1e-9):
            walked, answer = 0.0, kept[-1]
            for i in kept:
                walked += weights[i] / total
                if walked > target + offset:
                    answer = i
                    break
            answers.add(answer)
    return answers


@given(logits_lists, params, positions)
def test_sample_agrees_with_a_naive_walk(
    logits: torch.Tensor, params: SamplingParams, position: int
) -> None:
    assert sample(logits, params, position) in naive(logits, params, position)


@given(logits_lists)
def test_greedy_is_argmax(logits: torch.Tensor) -> None:
    assert sample(logits, SamplingParams(temperature=0), 5) == int(logits.argmax())


@pytest.mark.parametrize("largest", [largest_by_numpy, largest_by_torch])
@given(
    rows=st.lists(
        st.lists(
            st.sampled_from([0.0, 1.0, 16777217.0, math.inf, -math.inf, math.nan]),
            min_size=7,
            max_size=7,
        )
    )
)
def test_the_largest_of_each_row_is_the_first_that_nothing_exceeds(
    largest: Callable[[torch.Tensor], tuple[list[int], list[float]]], rows: list[list[float]]
) -> None:
    ids, values = largest(torch.tensor(rows).reshape(-1, 7))
    assert len(ids) == len(values) == len(rows)
    for token, value, row in zip(ids, values, rows, strict=True):
        if any(map(math.isnan, row)):
            assert math.isnan(value)
            assert math.isnan(row[token])
        else:
            assert token == row.index(max(row))
            assert value == torch.tensor(row[token])


@given(logits_lists, seeds, positions)
def test_top_k_of_one_is_greedy_whatever_the_temperature(
    logits: torch.Tensor, seed: int, position: int
) -> None:
    hot = SamplingParams(temperature=100, top_k=1, seed=seed)
    assert logits[sample(logits, hot, position)] == logits.max()


@given(seeds, positions)
def test_uniform_is_in_range(seed: int, position: int) -> None:
    assert 0 <= uniform(seed, position) < 1


def test_uniform_differs_by_position_and_by_seed() -> None:
    assert len({uniform(seed, position) for seed in range(30) for position in range(30)}) == 900


def test_uniform_is_fixed_for_ever() -> None:
    """Another worker, of another release, must continue a stream with the same tokens."""
    assert uniform(0, 0) == 0.7792240817648507
    assert uniform(2**64 - 1, 12345) == 0.9726389121903585


def test_frequencies_follow_the_probabilities() -> None:
    logits = torch.tensor([0.5, 0.3, 0.2]).log()
    params = SamplingParams(temperature=1, seed=7)
    counts = Counter(sample(logits, params, position) for position in range(4000))
    for token, probability in enumerate([0.5, 0.3, 0.2]):
        assert counts[token] / 4000 == pytest.approx(probability, abs=0.03)


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("broken", [[0, math.nan], [0, math.inf], [-math.inf, -math.inf]])
def test_broken_logits_are_an_error_that_says_where(
    broken: list[float], temperature: float
) -> None:
    with pytest.raises(FloatingPointError, match="position 9"):
        sample(torch.tensor(broken), SamplingParams(temperature), 9)


def test_broken_logits_leave_the_other_rows_alone() -> None:
    logits = Logits(torch.tensor([[0, 1], [math.nan, 3], [5, 4], [-math.inf, math.nan]]))
    assert [logits.likeliest(row, position=9) for row in (0, 2)] == [1, 0]
    for row in (1, 3):
        with pytest.raises(FloatingPointError, match="is nan"):
            logits.likeliest(row, position=9)


def test_infinite_logits_forbid_tokens() -> None:
    logits = torch.tensor([-math.inf, 1.0, -math.inf])
    params = SamplingParams(temperature=1, top_p=0.99)
    assert {sample(logits, params, position) for position in range(50)} == {1}
