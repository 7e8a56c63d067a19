"""The buffered histogram against the client's own, read at any time."""

import math
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from worker.engine import histogram as module
from worker.engine.histogram import BufferedHistogram

BUCKETS = (0.5, 1, 2.5)
eighths = st.integers(0, 32).map(lambda count: count / 8)
"""Their sums are exact in any order."""


def exposed(registry: CollectorRegistry) -> list[str]:
    """All lines but those of when it was created."""
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if "_created" not in line]


@given(st.lists(st.lists(eighths | st.just(math.inf), max_size=8)), st.integers(1, 5))
def test_it_is_exposed_as_the_clients_own(reads: list[list[float]], most: int) -> None:
    plain, ours = CollectorRegistry(), CollectorRegistry()
    model = Histogram("gap_seconds", "Between two", registry=plain, buckets=BUCKETS)
    buffered = BufferedHistogram("gap_seconds", "Between two", ours, BUCKETS)
    with patch.object(module, "MOST_UNCOUNTED", most):
        for values in reads:
            for value in values:
                buffered.observe(value)
                model.observe(value)
            assert len(buffered._uncounted) < most
            assert exposed(ours) == exposed(plain)
