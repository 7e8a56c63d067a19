"""A trace made longer: same shape, nothing in common."""

import pytest

from sim.request import Trace
from sim.trace.generate.spec import generated
from sim.trace.repeat import repeated
from sim.trace.row import TraceError


def test_repetitions_are_alike_and_have_nothing_in_common() -> None:
    trace = generated("chat:requests=40")
    longer = repeated(trace, 100)
    assert len(longer.requests) == 100
    seen: list[set[int]] = []
    for begin in (0, 40, 80):
        part = longer.requests[begin : begin + 40]
        for own, each in zip(trace.requests, part, strict=False):
            assert each.number == own.number + begin
            assert each.at == pytest.approx(own.at + longer.requests[begin].at)
            assert (each.prompt.tokens, each.output_tokens) == (
                own.prompt.tokens,
                own.output_tokens,
            )
            assert each.after == (None if own.after is None else own.after + begin)
        seen.append({id_ for each in part for id_ in each.prompt.ids})
    assert len(set().union(*seen)) == sum(map(len, seen))
    assert len({each.session for each in longer.requests[:40]}) == len(
        {each.session for each in trace.requests}
    )
    assert {each.session for each in longer.requests[:40]}.isdisjoint(
        each.session for each in longer.requests[40:]
    )
    pause = longer.requests[40].at - longer.requests[39].at
    assert pause == pytest.approx(trace.requests[-1].at / 39)


def test_nothing_cannot_be_repeated() -> None:
    with pytest.raises(TraceError, match="no request to repeat"):
        repeated(Trace("empty", []), 5)
    with pytest.raises(TraceError, match="ids are more than"):
        repeated(generated("unique:requests=1"), 10**9)
