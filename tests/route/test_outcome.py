"""Every prompt token counts once, judged one by one; and promises that are withdrawn in time."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from radixgate.prefix import PrefixHash

from gateway.fleet.worker import Life
from gateway.route.outcome import Fate, Outcome, Promise, Watch

TOKENS = 26
STRIDE = 4
NAMES = [PrefixHash(name) for name in range(1, TOKENS // STRIDE + 1)]
DEPTHS = st.integers(0, len(NAMES))


def promised(held: int, elsewhere: int = 0, evicted: int = 0, worker: str = "a") -> Promise:
    """`held`, `elsewhere` and, beyond these, `evicted` in boundaries."""
    return Promise(
        life=Life("m", worker, 1),
        prompt_tokens=TOKENS,
        held_tokens=held * STRIDE,
        last=NAMES[held - 1] if held else PrefixHash(0),
        expected_tokens=held * STRIDE,
        elsewhere_tokens=elsewhere * STRIDE,
        evicted_tokens=min(len(NAMES), max(held, elsewhere) + evicted) * STRIDE,
        in_sync=True,
        made_at=0.0,
    )


def fate_of(token: int, promise: Promise, cached: int) -> Fate:
    """Of one token, by all that was held or had been."""
    if token < cached:
        return Fate.CACHED
    gone = promise.withdrawn or promise.lapsed
    if token < promise.held_tokens and not gone:
        return Fate.STALE
    if token < promise.elsewhere_tokens:
        return Fate.ELSEWHERE
    if token < promise.evicted_tokens:
        return Fate.EVICTED
    return Fate.NEW


@given(
    held=DEPTHS,
    elsewhere=DEPTHS,
    evicted=DEPTHS,
    cached=st.integers(0, TOKENS),
    withdrawn=st.booleans(),
    lapsed=st.booleans(),
)
def test_every_token_has_one_fate(
    held: int, elsewhere: int, evicted: int, cached: int, withdrawn: bool, lapsed: bool
) -> None:
    promise = promised(held, elsewhere, evicted)
    promise.withdrawn, promise.lapsed = withdrawn, lapsed
    outcome = Outcome(promise, cached)
    expected = Counter(fate_of(token, promise, cached) for token in range(TOKENS))
    assert outcome.fates() == {fate: expected[fate] for fate in Fate}
    assert outcome.missing == expected[Fate.STALE]


class WatchMachine(RuleBasedStateMachine):
    """Prefix-closed holders lose ends; a promise is withdrawn when its own end goes."""

    @initialize()
    def start(self) -> None:
        self.watch = Watch()
        self.live: list[Promise] = []
        self.seen: list[Promise] = []
        self.withdrawn: set[Promise] = set()

    @rule(worker=st.sampled_from("ab"), held=DEPTHS)
    def begin(self, worker: str, held: int) -> None:
        promise = promised(held, worker=worker)
        self.live.append(promise)
        self.seen.append(promise)
        self.watch.begin(promise)

    @rule(worker=st.sampled_from("ab"), depth=DEPTHS)
    def evict_down_to(self, worker: str, depth: int) -> None:
        self.watch.removed(worker, NAMES[depth:])
        self.withdrawn.update(
            promise
            for promise in self.live
            if promise.life.worker == worker and promise.held_tokens > depth * STRIDE
        )

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if self.live:
            promise = data.draw(st.sampled_from(self.live))
            self.live.remove(promise)
            for _ in range(2):
                self.watch.end(promise)

    @invariant()
    def agrees(self) -> None:
        watched = self.watch.watched()
        assert len(watched) == len(set(watched))
        held = {promise for promise in self.live if promise.held_tokens}
        assert set(watched) == held - self.withdrawn
        assert {promise for promise in self.seen if promise.withdrawn} == self.withdrawn


TestWatch = WatchMachine.TestCase


def test_what_does_not_count() -> None:
    assert promised(2).counts
    assert not promised(0).counts
    unsure, lapsed = promised(2), promised(2)
    unsure.in_sync, lapsed.lapsed = False, True
    assert not unsure.counts
    assert not lapsed.counts
