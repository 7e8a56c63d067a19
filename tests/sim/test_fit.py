from dataclasses import astuple
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.hardware.fit import Measured, fit
from sim.hardware.step_time import StepTime, StepWork

# From a GPU to a slow CPU; each part matters in some of the steps below.
step_times = st.builds(
    lambda scale, parts: StepTime(
        step=scale * parts[0],
        prompt_token=scale * parts[1] / 50,
        pair=scale * parts[2] / 100_000,
        generation=scale * parts[3] / 4,
        context_token=scale * parts[4] / 1_000,
    ),
    st.floats(1e-4, 1e-1),
    st.tuples(*[st.floats(0.5, 2)] * 5),
)


def steps_of(step_time: StepTime, noise: float, rng: Random) -> list[Measured]:
    """As a calibration has them, each longer or shorter by up to `noise` of itself."""
    prompts = [(length, -(-length // 256)) for length in (32, 64, 128, 256, 512, 1024, 2048)]
    works = [(StepWork(length, length * length / 2, 0, 0), steps) for length, steps in prompts]
    works += [
        (StepWork(0, 0.0, crowd, crowd * length), 1)
        for length, _ in prompts
        for crowd in (1, 4, 16)
    ]
    return [
        Measured(work, steps, _seconds(step_time, work, steps) * (1 + noise * rng.uniform(-1, 1)))
        for work, steps in works
    ]


def _seconds(step_time: StepTime, work: StepWork, steps: int) -> float:
    return step_time.seconds(work) + (steps - 1) * step_time.step


@given(step_times, st.randoms(use_true_random=False))
def test_constants_are_found_again(step_time: StepTime, rng: Random) -> None:
    fitted = fit(steps_of(step_time, 0.0, rng))
    assert astuple(fitted.step_time) == pytest.approx(astuple(step_time), rel=1e-3)
    assert fitted.worst_error < 1e-3


@given(step_times, st.randoms(use_true_random=False))
def test_noise_moves_predictions_no_further_than_itself(step_time: StepTime, rng: Random) -> None:
    fitted = fit(steps_of(step_time, 0.05, rng))
    for work, steps, seconds in steps_of(step_time, 0.0, rng):
        assert _seconds(fitted.step_time, work, steps) == pytest.approx(seconds, rel=0.1)


@given(step_times, st.randoms(use_true_random=False))
def test_a_machine_that_did_something_else_does_not_pull(step_time: StepTime, rng: Random) -> None:
    measured = steps_of(step_time, 0.0, rng)
    index = rng.randrange(len(measured))
    measured[index] = measured[index]._replace(seconds=measured[index].seconds * 3)
    fitted = fit(measured)
    for work, steps, seconds in steps_of(step_time, 0.0, rng):
        assert _seconds(fitted.step_time, work, steps) == pytest.approx(seconds, rel=0.05)
    assert fitted.typical_error < 0.02
    assert fitted.worst_error > 0.5


def test_what_takes_no_time_is_zero() -> None:
    step_time = StepTime(0.01, 1e-4, 0.0, 1e-3, 0.0)
    fitted = fit(steps_of(step_time, 0.02, Random(3)))
    assert min(astuple(fitted.step_time)) == 0.0
    assert fitted.typical_error < 0.02


def test_too_little_to_tell() -> None:
    measured = steps_of(StepTime(0.01, 1e-4, 1e-8, 1e-3, 1e-6), 0.0, Random(0))
    with pytest.raises(ValueError, match="4 measurements do not tell 5 constants"):
        fit(measured[:4])
    with pytest.raises(ValueError, match="no measurement has generations"):
        fit(measured[:7])
    with pytest.raises(ValueError, match="no measurement has prompts"):
        fit(measured[7:])
