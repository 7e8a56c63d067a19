"""Decisions of one pool: what is held, what is on its way, and what they cost."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from radixgate.namespace import Namespace
from radixgate.prefix import pack_tokens, unpack_hashes
from radixgate.v1.sync_pb2 import Load

from gateway.fleet.trust import Belief, SyncState, Trust
from gateway.fleet.worker import FleetWorker
from gateway.route.cost import COST, CostConfig
from gateway.route.outcome import Promise
from gateway.route.reservation import Reservation
from gateway.route.router import Estimate, Prompt, Router, mostly_held
from gateway.summary.events import Registration
from gateway.summary.outbox import Outbox

STRIDE = 64
SEED = Namespace("f").seed()


def make_worker(name: str, state: SyncState = SyncState.SYNCED, **load: float) -> FleetWorker:
    fields = {"prefill_tokens_per_second": 1000.0, "max_running": 8, "free_blocks": 1000} | load
    return FleetWorker(
        Registration(name, 1, f"{name}:1", "m", "f", 16, STRIDE, 1000),
        lease=5.0,
        heard_at=0.0,
        deadline=5.0,
        state=state,
        load=Load(**fields),
    )


def make_prompt(*ids: Iterable[int]) -> Prompt:
    return Prompt(pack_tokens([token for run in ids for token in run]), STRIDE, SEED)


def names(estimates: list[Estimate]) -> list[str]:
    return [estimate.worker.id for estimate in estimates]


@pytest.fixture
def router() -> Router:
    return Router(Outbox("here"))


PROMPT = make_prompt(range(640))
A, B = make_worker("a"), make_worker("b")


def test_the_worker_that_holds_the_prefix_wins(router: Router) -> None:
    router.stored("b", PROMPT.boundaries[:7])
    best, other = router.estimate(PROMPT, [A, B], 1.0)
    assert (best.worker.id, best.matched_tokens, best.terms.prefill_ms) == ("b", 448, 192)
    assert (other.worker.id, other.matched_tokens, other.terms.prefill_ms) == ("a", 0, 640)


def test_a_hot_prefix_spills_when_waiting_costs_more_than_recomputing(
    router: Router,
) -> None:
    router.stored("b", PROMPT.boundaries)
    # Of the 640 tokens that `a` would compute, each weighs 4.8, as half of the pool is busy; then
    # there are 5 %.
    busy = [make_worker("b", backlog_tokens=3215), make_worker("b", backlog_tokens=3240)]
    assert names(router.estimate(PROMPT, [A, busy[0]], 1.0)) == ["b", "a"]
    assert names(router.estimate(PROMPT, [A, busy[1]], 1.0)) == ["a", "b"]


def test_a_worker_that_measured_nothing_is_taken_to_be_as_fast_as_the_others(
    router: Router,
) -> None:
    new = make_worker("new", prefill_tokens_per_second=0)
    slow = make_worker("slow", prefill_tokens_per_second=100)
    router.stored("slow", PROMPT.boundaries[:5])
    assert names(router.estimate(PROMPT, [new, slow], 1.0)) == ["slow", "new"]


def test_what_others_lose_by_a_prefill_is_the_same_at_a_slow_worker_and_at_a_fast_one(
    router: Router,
) -> None:
    workers = [make_worker(str(rate), prefill_tokens_per_second=rate) for rate in (250, 1000)]
    fast, slow = router.estimate(PROMPT, workers, 1.0)
    assert (fast.terms.prefill_ms, slow.terms.prefill_ms) == (640, 2560)
    # Three times what the mean worker takes, which has 625 tokens a second.
    assert fast.weighed_ms == pytest.approx(640 + 3 * 1024)
    assert slow.weighed_ms == pytest.approx(2560 + 3 * 1024)


def test_what_must_be_evicted_costs_the_same_at_all_workers(router: Router) -> None:
    """By its own regret, who evicts what comes back would send that to the others."""
    full = [make_worker(str(at), free_blocks=0, regret_ms_per_block=at) for at in (2, 0, 4)]
    assert [each.terms.evict_ms for each in router.estimate(PROMPT, full, 1.0)] == [80] * 3


def test_mostly_held_is_more_than_half_where_there_is_a_place(router: Router) -> None:
    router.stored("a", PROMPT.boundaries[:6])
    router.stored("b", PROMPT.boundaries[:5])
    full = make_worker("a", running=8, waiting=1)
    assert mostly_held(PROMPT, router.estimate(PROMPT, [A, B], 1.0))
    assert not mostly_held(PROMPT, router.estimate(PROMPT, [full, B], 1.0))
    assert not mostly_held(PROMPT, [])


def test_what_was_computed_since_a_report_is_not_waited_for(router: Router) -> None:
    (estimate,) = router.estimate(PROMPT, [A], 1.0)
    reservation = router.reserve(PROMPT, estimate, 1.0)
    router.reported("a")
    busy = make_worker("a", backlog_tokens=640)
    assert router.estimate(PROMPT, [busy], 1.0)[0].terms.wait_ms == 640
    router.computed(reservation)
    assert router.estimate(PROMPT, [busy], 1.0)[0].terms.wait_ms == 0


def test_a_suspect_summary_counts_half(router: Router) -> None:
    router.stored("b", PROMPT.boundaries)
    (estimate,) = router.estimate(PROMPT, [make_worker("b", SyncState.DETACHED)], 1.0)
    assert (estimate.matched_tokens, estimate.terms.prefill_ms) == (640, 320)


def test_a_doubted_worker_counts_for_what_it_kept_in_ties_too(router: Router) -> None:
    router.stored("b", PROMPT.boundaries)
    for weight, best in ((0.25, "b"), (0.0, "a")):
        doubted = replace(B, doubt=Belief(Trust.SUSPECT, "it lied", weight))
        estimates = router.estimate(PROMPT, [make_worker("a", free_blocks=2000), doubted], 1.0)
        assert estimates[0].worker.id == best
        by_name = {each.worker.id: each for each in estimates}
        assert by_name["b"].terms.prefill_ms == 640 * (1 - weight)
        assert by_name["b"].matched_tokens == 640


def promised(router: Router, workers: list[FleetWorker]) -> tuple[Reservation, Promise]:
    estimates = router.estimate(PROMPT, workers, 1.0)
    reservation = router.reserve(PROMPT, estimates[0], 1.0)
    return reservation, router.promise(PROMPT, estimates, reservation, 1.0)


def test_a_promise_is_what_was_held_and_others_that_are_trusted_had(router: Router) -> None:
    names = PROMPT.boundaries
    router.stored("a", names)
    router.removed("a", names[8:9], evicted=names[8:9])
    router.removed("a", names[9:], evicted=())
    router.stored("b", names[:6])
    router.stored("c", names[:7])
    suspect = make_worker("c", SyncState.DETACHED)
    _, promise = promised(router, [A, B, suspect])
    assert (promise.life, promise.in_sync, promise.last) == (A.life, True, names[7])
    assert (promise.held_tokens, promise.elsewhere_tokens) == (512, 384)
    assert (promise.expected_tokens, promise.evicted_tokens) == (512, 576)
    assert promised(router, [suspect])[1].in_sync is False


def test_what_is_evicted_on_the_way_is_withdrawn(router: Router) -> None:
    router.stored("a", PROMPT.boundaries[:8])
    reservation, promise = promised(router, [A])
    router.removed("a", PROMPT.boundaries[4:8], evicted=PROMPT.boundaries[4:8])
    assert promise.withdrawn
    assert promise.counts
    router.release(reservation)


@pytest.mark.parametrize("booked", [False, True])
def test_a_promise_is_watched_until_its_reservation_ends_or_it_is_settled(
    router: Router, booked: bool
) -> None:
    for settled in (False, True):
        router.stored("a", PROMPT.boundaries)
        reservation, promise = promised(router, [A])
        promise.booked = booked
        router.release(reservation)
        assert promise.lapsed is not booked
        if settled:
            router.settled(promise)
        router.removed("a", PROMPT.boundaries, evicted=PROMPT.boundaries)
        assert promise.withdrawn is (booked and not settled)


def test_a_promise_does_not_outlive_the_life_that_made_it(router: Router) -> None:
    router.stored("a", PROMPT.boundaries)
    _, promise = promised(router, [A])
    router.forgotten("a", dict.fromkeys(PROMPT.boundaries))
    assert promise.lapsed


def test_a_sibling_follows_before_the_first_report_and_a_stranger_does_not(router: Router) -> None:
    busier = make_worker("b", backlog_tokens=200)
    first = router.estimate(PROMPT, [A, busier], 1.0)[0]
    router.reserve(PROMPT, first, 1.0)
    sibling = make_prompt(range(600), range(5000, 5020))
    best = router.estimate(sibling, [A, busier], 1.1)[0]
    assert (best.worker.id, best.matched_tokens, best.expected_tokens) == ("a", 0, 576)
    stranger = make_prompt(range(9000, 9620))
    assert names(router.estimate(stranger, [A, busier], 1.2)) == ["b", "a"]


@pytest.mark.parametrize(("weight", "spread"), [(0.0, 7), (COST.compute_weight, 1)])
def test_a_burst_of_siblings_stays_together_on_an_idle_fleet(weight: float, spread: int) -> None:
    router = Router(Outbox("here"), CostConfig(compute_weight=weight, crowd_weight=0))
    fleet = [make_worker(name) for name in "abcdefgh"]
    chosen = set()
    for own in range(5000, 5000 + 64 * 20, 20):
        sibling = make_prompt(range(4096), range(own, own + 20))
        best = router.estimate(sibling, fleet, 1.0)[0]
        router.reserve(sibling, best, 1.0)
        chosen.add(best.worker.id)
    assert len(chosen) == spread


def test_reserved_tokens_wait_until_reported_computed_released_or_lost(router: Router) -> None:
    def wait() -> float:
        return router.estimate(make_prompt(range(7000, 7100)), [A], 2.0)[0].terms.wait_ms

    for settle in (
        lambda reservation: router.reported("a"),
        router.computed,
        router.release,
        lambda reservation: router.forgotten("a", {}),
    ):
        reservation = router.reserve(PROMPT, router.estimate(PROMPT, [A], 1.0)[0], 1.0)
        assert wait() == pytest.approx(reservation.tokens)
        settle(reservation)
        assert wait() == 0
        router.release(reservation)


def test_boundaries_are_expected_until_the_request_ends(router: Router) -> None:
    def expected() -> int:
        return router.estimate(PROMPT, [A], 2.0)[0].expected_tokens

    reservation = router.reserve(PROMPT, router.estimate(PROMPT, [A], 1.0)[0], 1.0)
    router.reported("a")
    router.computed(reservation)
    assert expected() == 640
    router.release(reservation)
    assert expected() == 0


def test_a_new_life_owes_nothing_to_the_old_one(router: Router) -> None:
    router.stored("a", PROMPT.boundaries)
    router.reserve(PROMPT, router.estimate(PROMPT, [A], 1.0)[0], 1.0)
    router.forgotten("a", dict.fromkeys(PROMPT.boundaries))
    (estimate,) = router.estimate(PROMPT, [A], 1.1)
    assert (estimate.matched_tokens, estimate.expected_tokens) == (0, 0)


def test_only_what_the_last_that_held_it_evicted_counts_as_evicted(router: Router) -> None:
    names = PROMPT.boundaries
    router.stored("a", names[:8])
    router.stored("b", names[:4])
    assert router.evicted(names, 8) == 0
    router.removed("a", names[2:8], evicted=names[2:8])
    assert router.evicted(names, 4) == 4
    router.removed("b", names[3:4], evicted=())
    assert router.evicted(names, 3) == 0
    router.removed("b", names[2:3], evicted=names[2:3])
    assert router.evicted(names, 2) == 1
    router.forgotten("b", dict.fromkeys(names[:2]))
    router.removed("a", names[1:2], evicted=names[1:2])
    router.forgotten("a", dict.fromkeys(names[:1]))
    assert (router.evicted(names, 0), router.evicted(names, 1)) == (0, 2)
    router.stored("a", names[:3])
    router.removed("a", names[:3], evicted=())
    assert router.evicted(names, 1) == 0


def test_a_reservation_does_not_outlive_a_client_that_never_called(router: Router) -> None:
    router.reserve(PROMPT, router.estimate(PROMPT, [A], 1.0)[0], 1.0)
    assert router.estimate(PROMPT, [A], 1000.0)[0].expected_tokens == 0


def test_without_candidates_there_is_nothing_to_rank(router: Router) -> None:
    assert router.estimate(PROMPT, [], 1.0) == []


def test_another_namespace_matches_nothing(router: Router) -> None:
    router.stored("a", PROMPT.boundaries)
    foreign = Prompt(PROMPT.packed, STRIDE, Namespace("f", tenant="other").seed())
    assert router.estimate(foreign, [A], 1.0)[0].matched_tokens == 0


def test_what_another_gateway_reserved_counts_as_if_it_were_reserved_here(router: Router) -> None:
    other = Outbox("there")
    there = Router(other)
    # Both choose at the same time, so the other does not know either that a sibling is on its way.
    siblings = [make_prompt(range(640), range(own, own + 10)) for own in (7000, 8000)]
    for decides, sibling in zip((router, there), siblings, strict=True):
        decides.reserve(sibling, decides.estimate(sibling, [A], 1.0)[0], 1.0)
    announcement = other.take()
    assert announcement is not None
    router.heard(announcement, 1.0)

    stranger = make_prompt(range(9000, 9100))
    assert router.estimate(stranger, [A], 1.0)[0].terms.wait_ms == 650 + 10
    router.reported("a")
    assert router.estimate(stranger, [A], 1.0)[0].terms.wait_ms == 0
    assert router.estimate(siblings[1], [A], 1.0)[0].expected_tokens == 640


def test_a_reservation_ends_for_the_others_too(router: Router) -> None:
    other = Outbox("there")
    there = Router(other)
    reservation = there.reserve(PROMPT, there.estimate(PROMPT, [A], 1.0)[0], 1.0)
    for expected, end in ((640, lambda: there.release(reservation)), (0, lambda: None)):
        announcement = other.take()
        assert announcement is not None
        router.heard(announcement, 2.0)
        assert router.estimate(PROMPT, [A], 2.0)[0].expected_tokens == expected
        end()


def test_only_what_is_not_held_is_announced(router: Router) -> None:
    outbox = Outbox("there")
    there = Router(outbox)
    for decides in (router, there):
        decides.stored("a", PROMPT.boundaries[:7])
    there.reserve(PROMPT, there.estimate(PROMPT, [A], 1.0)[0], 1.0)
    announcement = outbox.take()
    assert announcement is not None
    (reserved,) = announcement.reserved
    assert reserved.tokens == 192
    assert unpack_hashes(reserved.boundaries) == PROMPT.boundaries[7:]
    router.heard(announcement, 1.0)
    (estimate,) = router.estimate(PROMPT, [A], 1.0)
    assert (estimate.matched_tokens, estimate.expected_tokens) == (448, 640)


def test_gateways_that_know_the_same_choose_the_same_and_spread_different_prompts() -> None:
    fleet = [make_worker(name) for name in "abcdefgh"]
    chosen = []
    for first in range(0, 64_000, 640):
        head = range(first, first + 64)
        siblings = [make_prompt(head, range(own, own + 99)) for own in (70_000, 80_000)]
        routers = [Router(Outbox(gateway)) for gateway in ("here", "there")]
        (choice,) = {
            decides.estimate(sibling, fleet, 1.0)[0].worker.id
            for decides, sibling in zip(routers, siblings, strict=True)
        }
        chosen.append(choice)
    assert set(chosen) == set("abcdefgh")
    assert max(map(chosen.count, chosen)) < 30


def test_after_all_is_heard_again_only_that_is_held(router: Router) -> None:
    router.stored("a", PROMPT.boundaries)
    router.cleared()
    router.stored("b", PROMPT.boundaries[:3])
    held = {each.worker.id: each.matched_tokens for each in router.estimate(PROMPT, [A, B], 1.0)}
    assert held == {"a": 0, "b": 192}
