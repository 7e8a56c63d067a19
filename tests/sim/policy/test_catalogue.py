"""What holds for every policy of others."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.policy.catalogue import CATALOGUE, policy
from sim.policy.cost import Cost
from tests.sim.policy.site import Client, FakeSite

OTHERS = sorted(set(CATALOGUE) - {name for name in CATALOGUE if name.startswith("cost")})
STEPS = st.lists(
    st.tuples(st.text("ab", max_size=5), st.integers(0, 3), st.integers(0, 5)), max_size=40
)


def replayed(name: str, steps: list[tuple[str, int, int]], workers: int) -> list[tuple[int, str]]:
    """Where each prompt went; `ends` of them end after each."""
    site = FakeSite(workers)
    client = Client(policy(name)(site), site)
    running: list[int] = []
    for text, extra, ends in steps:
        site.now += 40
        client.send(text, extra or 1)
        running.append(len(client.jobs) - 1)
        for _ in range(min(ends, len(running))):
            client.end(running.pop(0))
    assert not site.refused
    return [(number, choice.worker) for number, choice in site.sent]


@settings(max_examples=25)
@given(steps=STEPS, workers=st.integers(1, 5))
@pytest.mark.parametrize("name", OTHERS)
def test_every_job_is_sent_once_to_a_place_and_by_seed(
    name: str, steps: list[tuple[str, int, int]], workers: int
) -> None:
    sent = replayed(name, steps, workers)
    assert [number for number, _ in sent] == list(range(len(steps)))
    assert {worker for _, worker in sent} <= {f"w{index}" for index in range(workers)}
    assert replayed(name, steps, workers) == sent


def test_an_unknown_name_is_refused_with_all_that_there_are() -> None:
    with pytest.raises(ValueError, match="'fastest'") as error:
        policy("fastest")
    assert all(name in str(error.value) for name in CATALOGUE)


def test_cost_takes_other_constants() -> None:
    site = FakeSite(2)
    assert isinstance(policy("cost:wait=0/tie_ms=2/backlog_ms=100")(site), Cost)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cost:speed=1", "'speed' is no setting of it; there are wait, "),
        ("cost:wait=much", "wait must be a number, 0 or more, and is 'much'"),
        ("cost:tie_ms=nan", "tie_ms must be a number, 0 or more, and is 'nan'"),
        ("cost:tie_ratio=inf", "tie_ratio must be a number, 0 or more, and is 'inf'"),
        ("cost:evict=-1", "evict must be a number, 0 or more, and is '-1'"),
        ("cost:backlog_ms=0", "backlog_ms must be a number, above 0, and is '0'"),
        ("cost:backlog_ms=-5", "backlog_ms must be a number, above 0, and is '-5'"),
        ("cost:backlog_ms=nan", "backlog_ms must be a number, above 0, and is 'nan'"),
        ("cost:wait=1/wait=2", "wait is named twice"),
        ("ray:wait=1", "only cost takes settings"),
        ("cost:", "'' is no setting"),
    ],
)
def test_a_wrong_constant_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        policy(text)
