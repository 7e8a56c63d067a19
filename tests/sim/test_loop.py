"""Virtual time: order, and its end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.loop import EventLoop


@given(
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=1),
    st.lists(st.sampled_from([-1.0, 0.0, 1.0])),
)
def test_what_is_due_happens_in_order_and_time_never_goes_back(
    whens: list[float], later: list[float]
) -> None:
    loop, happened = EventLoop(), list[tuple[float, int]]()

    def happen(number: int, more: list[float]) -> None:
        happened.append((loop.now, number))
        if len(happened) == wanted:
            loop.end()
        if more:
            loop.call_at(loop.now + more[0], lambda: happen(number + 1000, more[1:]))

    wanted = len(whens) * (1 + len(later))
    for number, when in enumerate(whens):
        loop.call_at(when, lambda number=number: happen(number, later))  # type: ignore[misc]
    loop.run()
    assert len(happened) == wanted
    times = [at for at, _ in happened]
    assert times == sorted(times)
    first = [(at, number) for at, number in happened if number < 1000]
    assert first == sorted((when, number) for number, when in enumerate(whens))


def test_nobody_waits_for_ever() -> None:
    loop = EventLoop()
    loop.call_at(2.0, lambda: None)
    with pytest.raises(RuntimeError, match=r"at 2\.000 s nothing is due"):
        loop.run()
