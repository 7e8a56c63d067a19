"""A load that outgrows two workers' caches, and falls again: the pool follows, nobody notices.

A quarter of an hour of Kubernetes' waiting, in minutes (`tests.kube.scaling`), with SmolLM2.
"""

from pathlib import Path

import pytest

from tests.kube.scaling import SETTLED_SECONDS, ends, p90, play
from worker.model.pull import DEFAULT_MODEL, pull

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1500)]

STEADY_SECONDS = 60.0


async def test_the_pool_follows_the_load(tmp_path: Path) -> None:
    record = await play(tmp_path, pull(DEFAULT_MODEL))
    assert [each for each in record.asked if each.error] == []

    sizes = record.sizes()
    most = max(sizes)
    grown = sizes.index(most)
    assert sizes[0] == 2 < most, "it grows beyond the two that there are"
    assert sizes[: grown + 1] == sorted(sizes[: grown + 1]), "without going to and fro"
    assert sizes[grown:] == sorted(sizes[grown:], reverse=True), "nor when it shrinks"
    assert sizes[-1] < most
    settled = {
        sample.pods
        for sample in record.samples
        if sample.at > record.samples[-1].at - SETTLED_SECONDS
    }
    assert len(settled) == 1, "in the last ten minutes of the control loops nothing changes"

    risen = ends("rise")
    slices = [p90(record.between(at, at + 30)) for at in range(int(ends("calm")), int(risen), 30)]
    assert p90(record.between(risen - STEADY_SECONDS, risen)) < max(slices) / 2

    assert record.left, "pods were taken away"
    for name, costs in record.left:
        assert costs[name] == min(costs.values()), "and the coldest first"
