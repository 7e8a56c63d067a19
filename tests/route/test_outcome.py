"""Every prompt token counts once, judged one by one; and promises that are withdrawn in time."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from radixgate.prefix import PrefixHash

from gateway.fleet.worker import Life
from gateway.route.outcome import Fate, Promise, Watch, outcome
from gateway.route.reservations import Reservation
from gateway.route.tombstones import Tombstones

STRIDE = 4
NAMES = [PrefixHash(name) for name in range(1, 7)]
DEPTHS = st.integers(0, len(NAMES))


def promised(held: int, elsewhere: int = 0, tokens: int = 26, worker: str = "a") -> Promise:
    """`held` and `elsewhere` in boundaries."""
    return Promise(
        life=Life("m", worker, 1),
        prompt_tokens=tokens,
        boundaries=NAMES[: tokens // STRIDE],
        stride=STRIDE,
        held_tokens=held * STRIDE,
        expected_tokens=held * STRIDE,
        elsewhere_tokens=elsewhere * STRIDE,
        in_sync=True,
        made_at=0.0,
    )


def fate_of(token: int, promise: Promise, cached: int, evicted: set[PrefixHash]) -> Fate:
    """Of one token: by what is known of it, and of the evicted ones, of all before it."""
    if token < cached:
        return Fate.CACHED
    if token < promise.held_tokens and promise.watched and not promise.withdrawn:
        return Fate.STALE
    if token < promise.elsewhere_tokens:
        return Fate.ELSEWHERE
    at = token // STRIDE
    if at == len(promise.boundaries) or promise.boundaries[at] not in evicted:
        return Fate.NEW
    if token and fate_of(token - 1, promise, cached, evicted) is Fate.NEW:
        return Fate.NEW
    return Fate.EVICTED


@given(
    tokens=st.integers(1, 26),
    held=DEPTHS,
    elsewhere=DEPTHS,
    cached=st.integers(0, 30),
    watched=st.booleans(),
    withdrawn=st.booleans(),
    evicted=st.sets(st.sampled_from(NAMES)),
)
def test_every_token_has_one_fate(
    tokens: int,
    held: int,
    elsewhere: int,
    cached: int,
    watched: bool,
    withdrawn: bool,
    evicted: set[PrefixHash],
) -> None:
    boundaries = tokens // STRIDE
    promise = promised(min(held, boundaries), min(elsewhere, boundaries), tokens)
    promise.watched, promise.withdrawn = watched, withdrawn
    tombstones = Tombstones(10)
    tombstones.evicted(evicted)
    judged = outcome(promise, cached, tombstones)
    assert judged.cached_tokens == min(cached, tokens)
    expected = Counter(fate_of(token, promise, cached, evicted) for token in range(tokens))
    assert judged.fates == {fate: expected[fate] for fate in Fate}
    broken = max(0, promise.held_tokens - cached) if watched and not withdrawn else 0
    assert judged.kept_tokens == promise.held_tokens - broken


class WatchMachine(RuleBasedStateMachine):
    """Prefix-closed holders lose ends; a promise is withdrawn when its own end goes."""

    @initialize()
    def start(self) -> None:
        self.watch = Watch()
        self.live: list[tuple[Reservation, Promise]] = []
        self.withdrawn: set[Promise] = set()
        self.seen: list[Promise] = []

    @rule(worker=st.sampled_from("ab"), held=DEPTHS)
    def begin(self, worker: str, held: int) -> None:
        reservation = Reservation(worker, 1, (), STRIDE, 0.0)
        promise = promised(held, worker=worker)
        self.live.append((reservation, promise))
        self.seen.append(promise)
        self.watch.begin(reservation, promise)

    @rule(worker=st.sampled_from("ab"), depth=DEPTHS)
    def evict_down_to(self, worker: str, depth: int) -> None:
        self.watch.removed(worker, NAMES[depth:])
        self.withdrawn.update(
            promise
            for _, promise in self.live
            if promise.life.worker == worker and promise.held_tokens > depth * STRIDE
        )

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if self.live:
            reservation, promise = data.draw(st.sampled_from(self.live))
            self.live.remove((reservation, promise))
            for _ in range(2):
                self.watch.end(reservation)

    @invariant()
    def agrees(self) -> None:
        self.watch.check_integrity()
        assert len(self.watch) == len(self.live)
        live = {promise for _, promise in self.live}
        for promise in self.seen:
            assert promise.withdrawn is (promise in self.withdrawn)
            assert promise.watched is (promise in live)
            assert promise.counts is (promise.held_tokens > 0 and promise in live)


TestWatch = WatchMachine.TestCase


def test_a_promise_of_a_summary_out_of_sync_does_not_count() -> None:
    promise = promised(2)
    Watch().begin(Reservation("a", 1, (), STRIDE, 0.0), promise)
    assert promise.counts
    promise.in_sync = False
    assert not promise.counts
