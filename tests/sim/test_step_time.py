import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.hardware.step_time import StepTime, StepWork

seconds = st.floats(1e-9, 1e-2)
step_times = st.builds(
    StepTime,
    step=seconds | st.just(0.0),
    prompt_token=seconds,
    pair=seconds | st.just(0.0),
    generation=seconds,
    context_token=st.floats(1e-12, 1e-4) | st.just(0.0),
)
crowds = st.tuples(st.integers(1, 256), st.integers(0, 100_000), st.integers(1, 300))


@given(step_times, crowds)
def test_steps_in_a_row_take_what_they_take_one_by_one(
    step_time: StepTime, crowd: tuple[int, int, int]
) -> None:
    generations, context_tokens, steps = crowd
    one_by_one = math.fsum(
        step_time.seconds(StepWork(0, 0.0, generations, context_tokens + done * generations))
        for done in range(steps)
    )
    at_once = step_time.of_generations(generations, context_tokens, steps)
    assert at_once == pytest.approx(one_by_one, rel=1e-12)


@given(step_times, crowds, st.floats(0, 1e3))
def test_generations_in_is_the_fewest_steps_that_take_so_long(
    step_time: StepTime, crowd: tuple[int, int, int], wanted: float
) -> None:
    generations, context_tokens, _ = crowd
    steps = step_time.generations_in(generations, context_tokens, wanted)
    assert steps >= 1
    assert step_time.of_generations(generations, context_tokens, steps) >= wanted
    if steps > 1:
        assert step_time.of_generations(generations, context_tokens, steps - 1) < wanted


@given(step_times, crowds)
def test_generations_in_is_the_inverse_of_of_generations(
    step_time: StepTime, crowd: tuple[int, int, int]
) -> None:
    generations, context_tokens, steps = crowd
    taken = step_time.of_generations(generations, context_tokens, steps)
    assert step_time.generations_in(generations, context_tokens, taken) == steps


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pair": -1.0}, "pair must be 0 or more seconds"),
        ({"step": math.nan}, "step must be 0 or more seconds"),
        ({"context_token": math.inf}, "context_token must be 0 or more seconds"),
        ({"prompt_token": 0.0}, "a token must take some time"),
        ({"step": 0.0, "generation": 0.0}, "a token must take some time"),
    ],
)
def test_constants_that_make_no_sense(change: dict[str, float], message: str) -> None:
    sane = {"step": 1.0, "prompt_token": 1.0, "pair": 1.0, "generation": 1.0, "context_token": 1.0}
    with pytest.raises(ValueError, match=message):
        StepTime(**{**sane, **change})
