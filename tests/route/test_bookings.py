"""When outcomes are settled, and who hears of doubt."""

from gateway.fleet.trust import Belief
from gateway.fleet.worker import Life
from gateway.route.bookings import Bookings
from gateway.route.outcome import Fate, Outcome, Promise
from gateway.route.record import FIRST_PAUSE, GRACE, LIMIT, Records
from tests.route.test_record import LIFE, promised

TOKENS = 1024


class Scene:
    """What was settled, and what is believed of each life."""

    def __init__(self) -> None:
        self.settled: list[Outcome] = []
        self.believed: dict[Life, Belief | None] = {}
        self.bookings = Bookings(
            Records(), doubt=self.believed.__setitem__, settled=self.settled.append
        )

    def book(self, cached: int, now: float = 0.0) -> Promise:
        promise = promised(TOKENS, now)
        self.bookings.book(promise, cached, now)
        assert promise.booked
        return promise


def test_an_outcome_is_settled_at_once_when_nothing_is_missing() -> None:
    scene = Scene()
    promise = scene.book(TOKENS + 5)
    assert scene.settled == [Outcome(promise, TOKENS)]
    assert not scene.bookings.pending


def test_what_is_missing_may_be_explained_until_it_is_settled() -> None:
    scene = Scene()
    explained, stale = scene.book(100), scene.book(100)
    assert scene.settled == []
    assert scene.bookings.pending
    scene.bookings.step([LIFE], GRACE / 2)
    assert scene.settled == []
    explained.withdrawn = True
    scene.bookings.step([LIFE], GRACE)
    assert [outcome.promise for outcome in scene.settled] == [explained, stale]
    assert [outcome.fates()[Fate.STALE] for outcome in scene.settled] == [0, TOKENS - 100]
    scene.bookings.step([LIFE], GRACE + 1)
    assert len(scene.settled) == 2
    assert not scene.bookings.pending


def test_what_does_not_count_is_settled_and_makes_no_doubt() -> None:
    scene = Scene()
    for _ in range(LIMIT):
        promise = promised(TOKENS, 0.0)
        promise.in_sync = False
        scene.bookings.book(promise, 0, 0.0)
    assert not any(scene.believed.values())


def test_a_doubt_is_told_at_once_asked_about_and_ended_by_time() -> None:
    scene = Scene()
    for _ in range(LIMIT):
        assert not scene.believed.get(LIFE)
        scene.book(0)
    assert scene.believed[LIFE]
    assert scene.bookings.step([LIFE], GRACE / 2) == []
    ((life, _),) = scene.bookings.step([LIFE], GRACE)
    assert life == LIFE
    assert scene.bookings.pending
    before = scene.believed[LIFE]
    scene.bookings.replaced(LIFE, GRACE + 0.5)
    assert before
    assert scene.believed[LIFE] not in (before, None)
    scene.bookings.step([LIFE], FIRST_PAUSE + 1)
    assert scene.believed[LIFE] is None
    assert not scene.bookings.pending


def test_the_record_of_a_life_that_is_over_is_forgotten() -> None:
    scene = Scene()
    for _ in range(LIMIT):
        scene.book(0)
    scene.bookings.step([], GRACE)
    assert not scene.bookings.pending
