"""The public traces themselves, where they are there: what is known of them is found."""

from pathlib import Path

import pytest

from sim.request import Trace
from sim.trace.formats import open_trace

TRACES = Path(__file__).parents[4] / "shared/data/traces"


def opened(name: str) -> Trace:
    """A public trace."""
    if not (TRACES / name).exists():
        pytest.skip(f"{TRACES / name} is not there")
    return open_trace(TRACES / name)


def reused(trace: Trace) -> float:
    """Blocks that one endless cache would have had, as a share of all."""
    seen: set[tuple[int, int]] = set()
    blocks = hits = 0
    for request in trace.requests:
        placed = set(enumerate(request.prompt.ids))
        blocks += len(placed)
        hits += len(placed & seen)
        seen |= placed
    return hits / blocks


def test_mooncake() -> None:
    trace = opened("mooncake_conversation.jsonl.gz")
    assert len(trace.requests) == 12_031
    assert trace.requests[-1].at == pytest.approx(3536.999)
    assert reused(trace) == pytest.approx(0.366, abs=5e-4)


def test_coding_agents() -> None:
    trace = opened("agentic_coding.sessions.jsonl.gz")
    assert len(trace.requests) == 9_196
    assert len({each.session for each in trace.requests}) == 150
    tokens = sum(each.prompt.tokens for each in trace.requests)
    assert tokens / len(trace.requests) == pytest.approx(120_000, rel=0.01)
    # All follow on another one, but the first of each session and of what began beside it.
    assert sum(each.after is None for each in trace.requests) == 151
    for each in trace.requests:
        if each.after is not None:
            assert trace.requests[each.after].session == each.session


def test_azure() -> None:
    trace = opened("azure_conv_2023.csv.gz")
    assert len(trace.requests) == 19_366
    assert reused(trace) == 0.0
