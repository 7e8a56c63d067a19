"""Turns at a pool with so many places: who has one, who waits, how often room is asked for."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.route.admission import TURN_OF_OLDEST, Moved, Reason
from gateway.route.room import Room
from gateway.route.ticket import Ticket
from gateway.route.turns import TICK_SECONDS, Turns
from tests.route.tickets import ticket

NOTHING = Moved([], [])


class Scene:
    """A pool with so many `places`; None is a pool without workers. What is `inside` takes one.

    `work`: that its backlogs have room for.
    """

    def __init__(self, places: int | None = 1, limit: int = 100, work: float = 1e9) -> None:
        self.places = places
        self.work = work
        self.inside = 0
        self.asked = 0
        self.turns = Turns(limit, lambda _: 1.0, self.room)

    def room(self) -> Room | None:
        self.asked += 1
        return None if self.places is None else Room(self.places - self.inside, self.work)


def test_who_comes_while_there_is_room_has_a_turn_at_once() -> None:
    scene = Scene(places=2)
    for inside in range(2):
        assert scene.turns.takes(10, 0.0)
        scene.inside = inside + 1
    assert not scene.turns.takes(10, 0.0)


def test_room_is_asked_for_again_after_a_while_or_when_it_is_used_up_or_wrong() -> None:
    scene = Scene(places=3)
    for now, asked in ((0.0, 1), (TICK_SECONDS / 2, 1), (TICK_SECONDS, 2)):
        assert scene.turns.takes(10, now)
        assert scene.asked == asked
    scene.turns.changed()
    assert scene.turns.takes(10, TICK_SECONDS)
    assert scene.asked == 3
    scene.inside = 3
    scene.turns.changed()
    assert not scene.turns.takes(10, TICK_SECONDS)
    assert not scene.turns.takes(10, TICK_SECONDS)
    assert scene.asked == 5


def test_nobody_passes_those_that_wait() -> None:
    scene = Scene(places=0)
    first = ticket(arrived=0.0)
    assert not scene.turns.takes(10, 0.0)
    assert scene.turns.offer(first, 0.0) == NOTHING
    scene.places = 5
    assert not scene.turns.takes(10, 0.0)
    assert scene.turns.move(0.0) == Moved([first], [])
    assert len(scene.turns) == 0


def test_who_has_its_turn_takes_a_place_before_the_router_knows_it() -> None:
    scene = Scene(places=0)
    first, second, third = (ticket(arrived=float(at)) for at in range(3))
    assert not scene.turns.takes(10, 0.0)
    for each in (first, second, third):
        assert scene.turns.offer(each, 0.0) == NOTHING
    scene.places = 1
    assert scene.turns.move(0.0).entered == [first]
    assert scene.turns.move(0.0) == NOTHING
    scene.inside += 1
    scene.turns.entered(first)
    assert scene.turns.move(0.0) == NOTHING
    scene.places = 2
    assert scene.turns.move(0.0).entered == [second]
    scene.turns.withdraw(second)
    assert scene.turns.move(0.0).entered == [third]


def test_the_first_that_waits_and_the_urgent_find_new_room_at_once() -> None:
    scene = Scene(places=0)
    assert not scene.turns.takes(10, 0.0)
    scene.places = 1
    first = ticket()
    assert scene.turns.offer(first, 0.0).entered == [first]
    scene.turns.entered(first)
    scene.inside = 1
    second, third, urgent = ticket(), ticket(), ticket(priority=1)
    assert scene.turns.offer(second, 0.0) == NOTHING
    scene.places = 2
    assert scene.turns.offer(third, 0.0) == NOTHING
    assert scene.turns.offer(urgent, 0.0).entered == [urgent]


def held(tenant: str = "a", **options: Any) -> Ticket:
    return ticket(tenant, held=True, **options)


def test_who_is_mostly_held_passes_backlogs_and_those_that_wait_for_them() -> None:
    scene = Scene(places=1, limit=1, work=0)
    cold, first, second = ticket(), held(), held()
    assert not scene.turns.takes(10, 0.0)
    assert scene.turns.offer(cold, 0.0) == NOTHING
    assert scene.turns.offer(first, 0.0) == Moved([first], [])
    # The only place is taken, so it waits like the others; and only one may.
    assert [each.ticket for each in scene.turns.offer(second, 0.0).shed] == [second]
    scene.turns.entered(first)
    scene.work = 100
    assert scene.turns.move(0.0).entered == [cold]


def test_who_passes_is_neither_urgent_nor_can_wait() -> None:
    assert held().passes
    assert not ticket().passes
    assert not held(priority=-1).passes
    assert not held(priority=1).passes


@pytest.mark.parametrize("waits", [ticket("a"), ticket("b"), ticket("a", priority=-1)])
def test_nobody_passes_out_of_its_turn(waits: Ticket) -> None:
    scene = Scene(places=100, work=0)
    assert not scene.turns.takes(10, 0.0)
    assert scene.turns.offer(waits, 0.0) == NOTHING
    passed = 0
    while scene.turns.offer(held("a"), 0.0).entered:
        passed += 1
    # By weight it was the turn of "a" once; else of the oldest that waits, after so many.
    assert passed == (1 if waits.tenant == "b" else TURN_OF_OLDEST - 1)


def test_nobody_passes_the_urgent() -> None:
    scene = Scene(places=0, work=0)
    assert not scene.turns.takes(10, 0.0)
    urgent = ticket(priority=1)
    assert scene.turns.offer(urgent, 0.0) == NOTHING
    scene.places = 1
    assert scene.turns.offer(held(), 0.0) == NOTHING
    assert scene.turns.move(0.0).entered == [urgent]


def test_of_too_many_one_is_shed_when_it_comes() -> None:
    scene = Scene(places=0, limit=1)
    first, second = ticket(arrived=0.0), ticket(arrived=1.0)
    assert not scene.turns.takes(10, 0.0)
    scene.turns.offer(first, 0.0)
    ((shed, reason, _),) = scene.turns.offer(second, 1.0).shed
    assert (shed, reason) == (second, Reason.FULL)


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize(("places", "reasons"), [(None, []), (0, [Reason.LATE])])
def test_without_workers_nobody_is_late_before_its_deadline(
    places: int | None, reasons: list[Reason], others: int
) -> None:
    """With workers, it is told at once that it cannot be finished in time."""
    turns = Scene(places).turns
    turns.served(10.0)
    assert not turns.takes(10, 0.0)
    for _ in range(others):
        assert turns.offer(ticket(), 0.0) == NOTHING
        assert turns.staffed is (places is not None)
    shed = turns.offer(ticket(deadline=5.0), 0.0).shed
    assert [each.reason for each in shed] == reasons


@given(
    st.integers(0, 3),
    st.lists(st.sampled_from(["come", "urgent", "enter", "end", "cancel", "wait"]), max_size=60),
)
def test_there_are_never_more_inside_than_places_and_nobody_waits_for_nothing(
    places: int, steps: list[str]
) -> None:
    scene, now = Scene(places), 0.0
    turns, waiting, entering = scene.turns, [], []

    def told(moved: Moved) -> None:
        for each in moved.entered:
            waiting.remove(each)
            entering.append(each)

    def come(new: Ticket) -> None:
        if turns.takes(new.tokens, now):
            scene.inside += 1
            return
        waiting.append(new)
        told(turns.offer(new, now))

    for step in steps:
        match step:
            case "come" | "urgent":
                come(ticket(priority=int(step == "urgent"), arrived=now))
            case "enter" if entering:
                turns.entered(entering.pop(0))
                scene.inside += 1
            case "end" if scene.inside:
                scene.inside -= 1
                told(turns.move(now))
            case "cancel" if waiting or entering:
                line = waiting or entering
                turns.withdraw(line.pop())
                told(turns.move(now))
            case "wait":
                now += TICK_SECONDS
                told(turns.move(now))
        assert scene.inside + len(entering) <= places
        assert len(turns) == len(waiting)
        assert not waiting or scene.inside + len(entering) == places
