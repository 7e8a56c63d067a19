"""What of a leaving worker is computed elsewhere: only what pays, and what nobody has."""

from dataclasses import replace
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fleet.trust import Belief, SyncState, Trust
from gateway.route.cost import CostTerms
from gateway.route.replan import MAX_TOKENS, Verdict, judge, most_tokens, pays, unfolded
from gateway.route.router import Router
from gateway.summary.outbox import Outbox
from tests.route.test_router import PROMPT, make_worker

# On an idle worker: P > (1 - P) / 4, so P > 1/5.
ENOUGH = 0.2232


def terms(*, prefill: float = 100.0, interfere: float = 0.0, evict: float = 0.0) -> CostTerms:
    return CostTerms(0.0, prefill, interfere, evict)


def test_on_an_idle_worker_it_pays_when_one_in_five_comes_back() -> None:
    assert pays(ENOUGH, terms())
    assert not pays(ENOUGH - 0.001, terms())
    assert not pays(0.0, terms())


def test_who_runs_there_and_what_must_go_raise_the_price() -> None:
    assert not pays(ENOUGH, terms(interfere=1))
    assert pays(0.82, terms(interfere=100))
    assert not pays(0.80, terms(interfere=100))
    assert pays(100.0, terms(evict=99))
    assert not pays(100.0, terms(evict=101))


@given(
    hits=st.floats(0.01, 20),
    prefill=st.floats(1, 1e5),
    interfere=st.floats(0, 1e5),
    evict=st.floats(0, 1e5),
)
def test_it_pays_when_the_expected_delay_falls(
    hits: float, prefill: float, interfere: float, evict: float
) -> None:
    """By the two ways in which it may come, with what each costs and spares."""
    comes = 1 - exp(-hits)
    spared = comes * prefill
    in_vain = (1 - comes) * (prefill / 4 + interfere)
    if spared - in_vain - evict == pytest.approx(0, abs=1e-6 * (spared + in_vain + evict)):
        return
    expected = spared - in_vain - evict > 0
    assert pays(hits, terms(prefill=prefill, interfere=interfere, evict=evict)) is expected


@pytest.fixture
def router() -> Router:
    return Router(Outbox("here"))


def test_what_another_holds_is_not_computed(router: Router) -> None:
    b, c = make_worker("b"), make_worker("c")
    estimates = router.estimate(PROMPT, [b, c], 1.0)
    assert judge(5, PROMPT, estimates) is Verdict.WORTHWHILE
    assert judge(0.1, PROMPT, estimates) is Verdict.DECLINED
    router.stored("c", PROMPT.boundaries[:9])
    assert judge(5, PROMPT, router.estimate(PROMPT, [b, c], 1.0)) is Verdict.WORTHWHILE
    router.stored("c", PROMPT.boundaries[9:])
    assert judge(5, PROMPT, router.estimate(PROMPT, [b, c], 1.0)) is Verdict.HELD
    assert judge(5, PROMPT, router.estimate(PROMPT, [b], 1.0)) is Verdict.WORTHWHILE


def test_what_is_on_its_way_is_not_computed_twice(router: Router) -> None:
    b, c = make_worker("b"), make_worker("c")
    router.reserve(PROMPT, router.estimate(PROMPT, [c], 1.0)[0], 1.0)
    assert judge(5, PROMPT, router.estimate(PROMPT, [b, c], 1.0)) is Verdict.HELD


def test_a_summary_that_is_not_believed_holds_nothing(router: Router) -> None:
    router.stored("c", PROMPT.boundaries)
    for suspect in (
        make_worker("c", SyncState.DETACHED),
        replace(make_worker("c"), doubt=Belief(Trust.SUSPECT, "it lied", 0.4)),
    ):
        estimates = router.estimate(PROMPT, [make_worker("b"), suspect], 1.0)
        assert judge(5, PROMPT, estimates) is Verdict.WORTHWHILE


def test_those_that_stay_are_asked_for_a_part_of_their_memory() -> None:
    assert most_tokens([]) == 0
    assert most_tokens([make_worker("a"), make_worker("b")]) == 2 * 16_000 // 8
    assert most_tokens([make_worker(str(at)) for at in range(1000)]) == MAX_TOKENS


def test_prefixes_are_unfolded() -> None:
    assert unfolded([(0, b"aa"), (1, b"b"), (0, b"c"), (2, b"d")]) == [
        b"aa",
        b"aab",
        b"c",
        b"aabd",
    ]
    with pytest.raises(ValueError, match="prefix 2 extends prefix 2"):
        unfolded([(0, b"aa"), (2, b"b")])
