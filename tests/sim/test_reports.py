"""What a policy hears of workers, and how often."""

from itertools import pairwise

import pytest
from radixgate.v1.sync_pb2 import Load

from sim.policy.llmd import LlmdScorers
from sim.policy.round_robin import RoundRobin
from sim.setting import Setting
from tests.sim.small import STRIDE, asked, played, setup, trace


@pytest.mark.parametrize("seconds", [RoundRobin.load_seconds, LlmdScorers.load_seconds, 3.0])
def test_loads_come_as_often_as_the_policy_asks(seconds: float) -> None:
    heard: list[tuple[float, str]] = []

    class Listening(RoundRobin):
        load_seconds = seconds

        def loaded(self, worker: str, load: Load) -> None:
            heard.append((self.site.now, worker))

    played(trace(asked(0, 0.0, [1]), asked(1, 30.0, [1])), Setting(setup(), 2, STRIDE), Listening)
    assert heard[:2] == [(0.0, "worker-0"), (0.0, "worker-1")]
    of_one = [at for at, worker in heard[2:] if worker == "worker-0"]
    assert of_one[0] <= seconds + 0.001
    gaps = [later - at for at, later in pairwise(of_one)]
    assert gaps == pytest.approx([seconds] * len(gaps))
    assert len(of_one) >= 30 / seconds - 1
