"""The cost's terms by hand, and what must hold whatever the numbers."""

from dataclasses import astuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from radixgate.v1.sync_pb2 import Load

from gateway.fleet.pressure import Pressure
from gateway.route.cost import (
    COST,
    PRIOR_WORK_PER_MS,
    SEQUENCES,
    STEPS,
    CostConfig,
    CostTerms,
    Pool,
    cost,
    ranked,
)
from gateway.route.reservations import Unreported

IDLE = Load(max_running=8, free_blocks=1000, prefill_tokens_per_second=2000, itl_ms=20)


POOL = Pool(work_per_ms=0.5, step_ms=10, regret_ms=3)


def cost_of(
    tokens: int, cached: float, load: Load, reserved: int = 0, requests: int = 0
) -> CostTerms:
    return cost(
        tokens,
        cached,
        Pressure.of(load),
        Unreported(requests, reserved),
        block_size=16,
        pool=POOL,
        rate=POOL.rate(Pressure.of(load)),
    )


def with_load(**fields: float) -> Load:
    load = Load()
    load.CopyFrom(IDLE)
    load.MergeFrom(Load(**fields))
    return load


def test_an_idle_worker_costs_the_prefill() -> None:
    assert cost_of(600, 200, IDLE) == CostTerms(0, 200, 0, 0)


def test_tokens_ahead_are_waited_for() -> None:
    assert cost_of(100, 0, with_load(backlog_tokens=300), 700).wait_ms == 500


def test_a_fully_cached_prompt_computes_its_last_token() -> None:
    assert cost_of(600, 600, IDLE).prefill_ms == 0.5


def test_a_full_house_is_waited_for() -> None:
    # 8 run, 128 tokens of 20 ms each to go: one leaves every 320 ms, and two go in before us.
    # Then there is the step under way.
    assert cost_of(100, 0, with_load(running=8, waiting=2)).wait_ms == 960 + POOL.step_ms
    assert cost_of(100, 0, with_load(running=7)).wait_ms == POOL.step_ms
    assert cost_of(100, 0, with_load(running=0)).wait_ms == 0


def test_what_runs_is_delayed_by_the_prefill_and_delays_the_answer() -> None:
    assert cost_of(400, 0, with_load(running=4)).interfere_ms == pytest.approx(
        4 * (200 / SEQUENCES + STEPS * POOL.step_ms)
    )


def test_what_is_on_its_way_runs_and_what_has_ended_does_not() -> None:
    for reported, more in ((4, 0), (1, 3), (0, 4), (7, -3)):
        assert cost_of(400, 0, with_load(running=reported), requests=more) == cost_of(
            400, 0, with_load(running=4)
        )
    assert cost_of(400, 0, with_load(running=2), requests=-5) == cost_of(400, 0, IDLE)


def test_context_makes_a_token_dearer_at_a_worker_that_says_so() -> None:
    knows = Load(
        prefill_work_per_second=1000,
        attention_tokens=500,
        backlog_work=40,
        backlog_tokens=7,
        free_blocks=1000,
    )
    # 500 tokens whose contexts are 750 long on average.
    assert cost_of(1000, 500, knows, 60) == CostTerms(100, 1250, 0, 0)
    plain = Load(
        prefill_tokens_per_second=1000, attention_tokens=500, backlog_tokens=7, free_blocks=1000
    )
    assert cost_of(1000, 500, plain) == CostTerms(7, 500, 0, 0)


def test_how_long_the_prompts_were_says_nothing_of_a_worker() -> None:
    """What was measured on long prompts alone must not make a worker look slow."""
    long = Load(prefill_tokens_per_second=250, prefill_work_per_second=1000, attention_tokens=500)
    short = Load(prefill_tokens_per_second=1000, prefill_work_per_second=1000, attention_tokens=500)
    assert cost_of(1000, 0, long) == cost_of(1000, 0, short)


def test_blocks_that_must_go_are_regretted() -> None:
    full = Load(free_blocks=5, regret_ms_per_block=7, prefill_tokens_per_second=1000)
    assert cost_of(161, 0, full).evict_ms == 18
    assert cost_of(80, 0, full).evict_ms == 0


def test_a_worker_that_measured_nothing_yet_has_the_prior() -> None:
    assert cost_of(100, 0, Load(free_blocks=1000)) == CostTerms(0, 200, 0, 0)


def test_a_pool_is_the_mean_of_those_that_have_measured() -> None:
    loads = [IDLE, Load(), Load(prefill_tokens_per_second=1000, itl_ms=40)]
    assert Pool.of([*map(Pressure.of, loads)]) == Pool(1.5, 30, 0)
    assert Pool.of([Pressure.of(Load())]) == Pool.of([]) == Pool(PRIOR_WORK_PER_MS, 0, 0)


def test_regret_is_the_mean_of_all_since_who_evicts_nothing_regrets_nothing() -> None:
    loads = [Load(regret_ms_per_block=9), Load(), Load()]
    assert Pool.of([*map(Pressure.of, loads)]).regret_ms == 3


LOADS = st.builds(
    Load,
    backlog_tokens=st.integers(0, 10**6),
    waiting=st.integers(0, 100),
    running=st.integers(0, 64),
    max_running=st.integers(0, 64),
    free_blocks=st.integers(0, 10**5),
    prefill_tokens_per_second=st.floats(0, 1e5).filter(lambda rate: rate == 0 or rate > 1),
    itl_ms=st.floats(0, 1e3),
    regret_ms_per_block=st.floats(0, 1e3),
    backlog_work=st.floats(0, 1e6),
    prefill_work_per_second=st.floats(0, 1e5).filter(lambda rate: rate == 0 or rate > 1),
    attention_tokens=st.integers(0, 10**5),
)


@given(LOADS, st.integers(1, 10**5), st.floats(0, 1), st.floats(0, 1), st.integers(0, 10**6))
@example(Load(prefill_work_per_second=2, attention_tokens=3), 3109, 3.4437249890110474e-16, 0, 0)
def test_no_term_is_negative_and_holding_more_never_costs_more(
    load: Load, tokens: int, share: float, smaller: float, reserved: int
) -> None:
    warm = cost_of(tokens, share * tokens, load, reserved)
    cold = cost_of(tokens, smaller * share * tokens, load, reserved)
    terms = list(zip(astuple(warm), astuple(cold), strict=True))
    assert min(astuple(warm)) >= 0
    # NOTE: but for rounding, where two differ by less than a token.
    assert all(less <= more * (1 + 1e-12) for less, more in terms)
    assert warm.total_ms == pytest.approx(sum(astuple(warm)))


class Offer:
    """A candidate with just a price."""

    def __init__(
        self, weighed_ms: float, free_blocks: int, believed_tokens: int = 0, places: int = 0
    ) -> None:
        self.weighed_ms = weighed_ms
        self.free_blocks = free_blocks
        self.believed_tokens = believed_tokens
        self.places = places

    @property
    def merit(self) -> tuple[int, int]:
        return self.places, self.free_blocks


OFFERS = st.builds(
    Offer, st.floats(0, 1e6), st.integers(0, 3), st.integers(0, 2), st.integers(-1, 1)
)


@given(st.lists(OFFERS))
def test_ranking(offers: list[Offer]) -> None:
    order = ranked(offers, id)
    assert sorted(map(id, order)) == sorted(map(id, offers))
    if offers:
        lowest = min(offer.weighed_ms for offer in offers)
        near = [o for o in offers if o.weighed_ms <= lowest + max(1.0, 0.05 * lowest)]
        most = max(offer.believed_tokens for offer in near)
        holders = [offer for offer in near if offer.believed_tokens == most]
        cheapest = min(offer.weighed_ms for offer in holders)
        equals = [offer for offer in holders if offer.weighed_ms <= cheapest + 1.0]
        best = max(offer.merit for offer in equals)
        assert order[0] is max((offer for offer in equals if offer.merit == best), key=id)
        rest = [offer.weighed_ms for offer in order[1:]]
        assert rest == sorted(rest)


def test_computing_weighs_more_than_waiting_as_long() -> None:
    assert COST.weighed_ms(CostTerms(100, 20, 0, 0), COST.delays(0)) == 180
    assert COST.weighed_ms(CostTerms(0, 120, 0, 0), COST.delays(0)) == 480


@pytest.mark.parametrize(
    ("measured", "rate"), [(0, 0.5), (0.38, 0.5), (0.37, 0.37), (0.66, 0.5), (0.67, 0.67)]
)
def test_a_rate_near_the_mean_counts_as_the_mean(measured: float, rate: float) -> None:
    pressure = Pressure.of(Load(prefill_tokens_per_second=1000 * measured))
    assert POOL.rate(pressure) == rate


def test_the_busier_the_pool_the_more_computing_weighs() -> None:
    factors = [COST.delays(crowd) for crowd in (0, 0.25, 0.5, 0.75, 1)]
    assert factors == sorted(factors)
    assert factors[0] == COST.compute_weight
    assert factors[2] == pytest.approx(COST.compute_weight + 0.8)
    assert factors[-1] == COST.compute_weight + 8


def test_a_term_counts_as_its_factor_says() -> None:
    terms = CostTerms(1, 10, 100, 1000)
    assert CostConfig().weighed_ms(terms, 0) == terms.total_ms == 1111
    assert CostConfig(wait=0).weighed_ms(terms, 0) == 1110
    assert CostConfig(interfere=0).weighed_ms(terms, 0) == 1011
    assert CostConfig(evict=0.5).weighed_ms(terms, 0) == 611


def test_how_near_a_worker_must_be_that_holds_more_can_be_set() -> None:
    offers = [Offer(100, 0), Offer(104, 0, 1), Offer(109, 0, 2)]
    limits = {COST: 1, CostConfig(tie_ratio=0.1): 2, CostConfig(tie_ratio=0, tie_ms=3): 0}
    for config, best in limits.items():
        assert ranked(offers, id, config)[0] is offers[best]


def test_places_and_memory_decide_only_between_equal_costs() -> None:
    near, equal, lowest = Offer(102, 9, places=9), Offer(100.5, 1), Offer(100, 0)
    assert ranked([near, equal, lowest], id)[0] is equal
    assert ranked([near, equal, lowest], id, CostConfig(tie_ms=3))[0] is near


@pytest.mark.parametrize("preferred", [0, 1])
def test_equals_are_picked_by_affinity_alone(preferred: int) -> None:
    offers = [Offer(10, 5), Offer(10.2, 5), Offer(10, 4), Offer(12, 9)]
    favour = {id(offers[preferred]): 2, id(offers[1 - preferred]): 1}
    assert ranked(offers, lambda offer: favour[id(offer)])[0] is offers[preferred]
