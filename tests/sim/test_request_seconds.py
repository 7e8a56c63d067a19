"""What a request takes beside waiting and its steps."""

import pytest

from sim.setting import Setting
from tests.sim.small import STRIDE, asked, played, setup, trace


@pytest.mark.parametrize("seconds", [0.0, 0.25])
def test_it_delays_the_first_token_and_nothing_else(seconds: float) -> None:
    small = trace(asked(0, 0.0, [1, 2, 3], output_tokens=5))
    plain = played(small, Setting(setup(), 1, STRIDE)).requests
    run = played(small, Setting(setup(request_seconds=seconds), 1, STRIDE)).requests
    assert run.first_token[0] == pytest.approx(plain.first_token[0] + seconds)
    assert run.ended[0] - run.first_token[0] == pytest.approx(plain.ended[0] - plain.first_token[0])
