"""The state of the workers over time, whatever time a run takes."""

import numpy as np
import pytest

from sim.sampling import ENOUGH, FIRST_DISTANCE
from sim.setting import Setting
from tests.sim.small import STRIDE, asked, played, setup, trace


@pytest.mark.parametrize("seconds", [0.5, 1.0, 60.0, 5000.0])
@pytest.mark.parametrize("closed_loop", [None, 1])
def test_samples_are_even_and_enough(seconds: float, closed_loop: int | None) -> None:
    """In a closed loop the times of the trace say nothing of how long it takes."""
    setting = Setting(setup(), 2, STRIDE, closed_loop=closed_loop, service_seconds=seconds)
    run = played(
        trace(asked(0, 0.0, [1]), asked(1, 100_000.0, [1])).first(2 if closed_loop else 1), setting
    )
    samples, ended = run.samples, np.nanmax(run.requests.ended)
    steps = np.diff(samples.at)
    assert steps == pytest.approx(steps[0])
    assert samples.at[0] == 0
    assert ended - steps[0] <= samples.at[-1] <= ended
    assert len(samples.at) <= 2 * ENOUGH
    assert len(samples.at) >= ENOUGH or steps[0] == pytest.approx(FIRST_DISTANCE)
    assert samples.running.shape == samples.waiting.shape == (len(samples.at), 2)
    assert samples.running.sum() > len(samples.at) * 0.9
