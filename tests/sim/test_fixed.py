"""A worker whose requests all take the same time."""

import numpy as np
import pytest

from sim.setting import Setting
from sim.simulation import NETWORK_SECONDS
from tests.sim.small import STRIDE, asked, played, setup, trace

SECONDS = 0.25
SETTING = Setting(setup(), 1, STRIDE, service_seconds=SECONDS)


def test_every_request_takes_so_long_whatever_it_is() -> None:
    small = trace(
        asked(0, 0.0, [1] * 20, output_tokens=100),
        asked(1, 0.1, [2]),
        asked(2, 2.0, [1] * 20),
    )
    each = played(small, SETTING).requests
    assert each.started == pytest.approx(each.arrived + NETWORK_SECONDS)
    assert each.ended == pytest.approx(each.started + SECONDS)
    assert list(each.first_token) == list(each.started)
    assert list(each.cached) == [0, 0, 80]


def test_it_is_busy_as_long_as_it_serves_any() -> None:
    small = trace(
        asked(0, 0.0, [1]), asked(1, 0.125, [2]), asked(2, 0.125, [3]), asked(3, 2.0, [4])
    )
    workers = played(small, SETTING).workers
    assert workers.busy_seconds == pytest.approx([0.375 + SECONDS])
    assert list(workers.requests) == [4]


def test_prompts_wait_for_memory_in_their_order() -> None:
    prompts = [[1] * 5, [2] * 4, [3]]
    small = trace(*(asked(at, 0.0, prompt) for at, prompt in enumerate(prompts)))
    setting = Setting(setup(num_blocks=8), 1, STRIDE, service_seconds=SECONDS)
    run = played(small, setting)
    begins = np.round((run.requests.started - NETWORK_SECONDS) / SECONDS)
    assert list(begins) == [0, 1, 1]
    assert list(run.workers.evicted_blocks) == [2]


def test_what_comes_at_once_with_one_prefix_does_not_share_it() -> None:
    """Nothing is cached before it is computed; and the blocks of equal prompts are kept once."""
    small = trace(*(asked(at, 0.0, [1, 2]) for at in range(3)), asked(3, 1.0, [1, 2]))
    run = played(small, SETTING)
    assert list(run.requests.cached) == [0, 0, 0, 8]
    assert run.samples.used_blocks[-1, 0] == 2


def test_what_it_does_not_generate_needs_no_memory() -> None:
    run = played(
        trace(asked(0, 0.0, [1] * 7, output_tokens=100), asked(1, 0.0, [1] * 8)),
        Setting(setup(num_blocks=8), 1, STRIDE, service_seconds=SECONDS),
    )
    assert run.refusals == {"longer than the KV memory of a worker, 32 tokens": 1}
    assert list(run.requests.worker) == [0, -1]
