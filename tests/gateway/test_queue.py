"""Turns at a pool that the test plays: who gets them, who does not, and what is left behind."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from grpc import StatusCode
from hypothesis import given
from hypothesis import strategies as st
from radixgate.namespace import NamespaceSeed
from radixgate.prefix import pack_tokens
from radixgate.refused import RefusedError
from radixgate.v1.generate_pb2 import GenerateRequest, Scope
from radixgate.v1.sync_pb2 import Load
from radixgate.v1.worker_pb2 import ModelCard

from gateway.route.room import Room
from gateway.route.router import Estimate, Prompt
from gateway.route.turns import TICK_SECONDS
from gateway.route.weights import parse_weights
from gateway.scale.tally import Tally
from gateway.serve.metrics import Metrics
from gateway.serve.models import Models
from gateway.serve.prepare import Prepared
from gateway.serve.queue import Pool, QueueConfig
from gateway.serve.queues import Queues
from gateway.summary.events import Departed, Detached, Event, Loaded
from tests.gateway.doubles import make_card

MODEL = "m"
NOWHERE = RefusedError(StatusCode.UNAVAILABLE, "no worker: w: draining")


class Scene:
    """A queue in front of a pool with so many `places`; None is a pool without workers.

    A request that is inside its turn takes a place; `now` is the clock.
    """

    def __init__(self, places: int | None = 1, **config: Any) -> None:
        self.now = 0.0
        self.places = places
        self.tokens = 1e9
        self.cached = 0
        self.places_there = 1
        self.refusal: RefusedError | None = None
        self.inside: list[str] = []
        self.order: list[str] = []
        self.cards: dict[str, ModelCard] = {}
        self.known: list[str] = []
        self.metrics = Metrics()
        self.tally = Tally("g")
        fleet = cast(Any, SimpleNamespace(models=lambda: [*self.cards], card=self.cards.get))
        fleet.workers = lambda _: []
        models = Models(fleet, lambda: self.known, {})
        self.queues = Queues(
            QueueConfig(**{"seconds": 30.0, **config}),
            models,
            Pool(self.room, self.estimate),
            metrics=self.metrics,
            tally_of=lambda _: self.tally,
            clock=lambda: self.now,
        )
        self.queue = self.queues.of(MODEL)

    def room(self, model: str) -> Room | None:
        assert model == MODEL
        if self.places is None:
            return None
        return Room(self.places - len(self.inside), self.tokens)

    def estimate(self, prepared: Prepared) -> list[Estimate]:
        if self.refusal or self.places is None:
            raise self.refusal or NOWHERE
        return [cast(Any, SimpleNamespace(expected_tokens=self.cached, places=self.places_there))]

    async def serve(
        self,
        name: str,
        until: asyncio.Event | None = None,
        *,
        tokens: int = 100,
        priority: int = 0,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> None:
        """One request of a tenant called like its first letter, inside its turn until `until`."""
        prepared = make(name, tokens, priority)
        async with self.queue.turn(prepared, self.queues.times(timeout)):
            self.inside.append(name)
            self.order.append(name)
            try:
                await (until.wait() if until else asyncio.sleep(0))
            finally:
                self.inside.remove(name)

    def start(self, name: str, *args: Any, **options: Any) -> asyncio.Task[None]:
        return asyncio.create_task(self.serve(name, *args, **options), name=name)

    def sample(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"radixgate_gateway_{name}", labels)

    def shed(self, reason: str) -> float | None:
        return self.sample("shed_total", model=MODEL, reason=reason)

    def is_clean(self) -> bool:
        queue = self.queue
        return not (len(queue) or queue._answers or queue._turns._entering or queue._tick)


def make(name: str, tokens: int = 100, priority: int = 0) -> Prepared:
    packed = pack_tokens([1] * tokens)
    scope = Scope(tenant=name[:1])
    request = GenerateRequest(request_id=name, packed=packed, scope=scope, priority=priority)
    return Prepared(request, Prompt(packed, 64, NamespaceSeed(0)), MODEL)


async def settle() -> None:
    """Let all that can run do so."""
    for _ in range(10):
        await asyncio.sleep(0)


async def refused(task: asyncio.Task[None]) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        await asyncio.wait_for(task, 5)
    return caught.value


async def test_with_room_nobody_waits() -> None:
    scene = Scene(places=2)
    await scene.serve("a1", timeout=0.001)
    assert scene.order == ["a1"]
    assert scene.is_clean()
    assert scene.sample("queue_seconds_count", model=MODEL) == 1
    assert scene.sample("entered_tokens_total", model=MODEL, tenant="*") == 100


async def test_places_are_given_out_by_priority_then_weight() -> None:
    scene = Scene(places=1, weights=parse_weights("a:2"))
    go_on = asyncio.Event()
    first = scene.start("x", go_on)
    await settle()
    names = ["b1", "b2", "b3", "a1", "a2", "a3", "a4", "b4", "a5", "a6"]
    tasks = [scene.start(name) for name in names]
    tasks.append(scene.start("c!", priority=1))
    await settle()
    assert scene.order == ["x"]
    assert len(scene.queue) == 11
    assert scene.queues.waiting() == {MODEL: 11}
    go_on.set()
    await asyncio.gather(first, *tasks)
    assert scene.order[:2] == ["x", "c!"]
    tenants = "".join(name[0] for name in scene.order[2:])
    assert [tenants[:3].count("b"), tenants[:6].count("b")] == [1, 2]
    assert scene.is_clean()
    assert scene.sample("entered_tokens_total", model=MODEL, tenant="a") == 600


async def test_a_prompt_that_is_mostly_held_does_not_wait_for_backlogs() -> None:
    scene = Scene(places=2)
    scene.tokens = 0
    cold = scene.start("a1")
    await settle()
    assert scene.order == []
    scene.cached, scene.places_there = 51, 0
    nowhere = scene.start("a!")
    await settle()
    assert scene.order == []
    nowhere.cancel()
    scene.places_there = 1
    await scene.serve("a2")
    assert scene.order == ["a2"]
    scene.tokens = 100
    scene.queue.move()
    await cold
    assert scene.order == ["a2", "a1"]
    assert scene.is_clean()


async def test_what_happens_moves_the_queue_before_time_does() -> None:
    scene = Scene(places=1)
    ends = [asyncio.Event() for _ in range(3)]
    tasks = [scene.start(f"a{at}", end) for at, end in enumerate(ends)]
    await settle()
    ends[0].set()
    await settle()
    assert scene.inside == ["a1"]
    scene.places = 2
    scene.queues.observe("other", Departed("w", 1))
    await settle()
    assert scene.inside == ["a1"]
    scene.queues.observe(MODEL, Departed("w", 1))
    await settle()
    assert scene.inside == ["a1", "a2"]
    for end in ends:
        end.set()
    await asyncio.gather(*tasks)


async def test_the_urgent_do_not_wait_for_a_backlog() -> None:
    scene = Scene(places=1)
    scene.tokens = 0
    waiting = [scene.start(f"a{at}") for at in range(2)]
    await settle()
    urgent = scene.start("b", priority=1)
    await settle()
    assert urgent.done()
    assert scene.order == ["b"]
    for task in waiting:
        task.cancel()


async def test_room_is_looked_at_again_soon() -> None:
    scene = Scene(places=5)
    await scene.serve("a0")
    scene.places = 0
    scene.now += TICK_SECONDS
    task = scene.start("a1")
    await settle()
    assert scene.order == ["a0"]
    scene.places = 1
    scene.queue.move()
    await asyncio.wait_for(task, 5)


@pytest.mark.parametrize(
    ("event", "seen"),
    [
        (Departed("w", 1), True),
        (Loaded("w", 1, Load(draining=True), synced=True), True),
        (Loaded("w", 1, Load(), synced=True), False),
        (Detached("w", 1), False),
    ],
)
async def test_who_leaves_takes_room_away_at_once(event: Event, *, seen: bool) -> None:
    scene = Scene(places=5)
    await scene.serve("a0")
    scene.places = None
    scene.queues.observe(MODEL, event)
    task = scene.start("a1")
    await settle()
    assert (len(scene.queue) == 1) is seen
    task.cancel()


async def test_what_is_cached_is_not_paid_for() -> None:
    scene = Scene(places=0)
    scene.cached = 99
    cheap = [scene.start(f"a{at}") for at in range(6)]
    await settle()
    scene.cached = 0
    dear = [scene.start(f"b{at}") for at in range(6)]
    await settle()
    scene.places = 1
    scene.queue.move()
    await asyncio.gather(*cheap, *dear)
    assert [name[0] for name in scene.order].index("b") < 3
    assert "".join(name[0] for name in scene.order).endswith("b" * 5)


async def test_a_place_is_given_to_one_alone() -> None:
    scene = Scene(places=0)
    tasks = [scene.start(f"a{at}", asyncio.Event()) for at in range(3)]
    await settle()
    scene.places = 1
    scene.queue.move()
    scene.queue.move()  # before the first could take its place
    await settle()
    assert scene.inside == ["a0"]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert scene.is_clean()


async def test_whoever_is_cancelled_while_waiting_leaves_nothing() -> None:
    scene = Scene(places=0)
    tasks = [scene.start(f"a{at}") for at in range(2)]
    await settle()
    tasks[0].cancel()
    await settle()
    assert len(scene.queue) == 1
    scene.places = 1
    scene.queue.move()
    await tasks[1]
    assert scene.order == ["a1"]
    assert scene.is_clean()


async def test_the_place_of_whoever_is_cancelled_goes_to_the_next() -> None:
    scene = Scene(places=0)
    tasks = [scene.start(f"a{at}") for at in range(2)]
    await settle()
    scene.places = 1
    scene.queue.move()
    tasks[0].cancel()  # has its turn, but does not know it yet
    await asyncio.wait_for(tasks[1], 5)
    assert tasks[0].cancelled()
    assert scene.order == ["a1"]
    assert scene.is_clean()


@pytest.mark.parametrize("places", [1, 0])
async def test_a_turn_or_refusal_that_meets_a_cancellation_is_harmless(places: int) -> None:
    scene = Scene(places=0)
    task = scene.start("a", timeout=1.0)
    await settle()
    task.cancel()
    scene.places = places
    scene.now = 0.0 if places else 5.0
    scene.queue.move()
    await settle()
    assert task.cancelled()
    assert scene.is_clean()


async def test_of_too_many_one_is_shed_and_told_when_to_retry() -> None:
    scene = Scene(places=0, limit=2)
    tasks = [scene.start(f"a{at}") for at in range(3)]
    error = await refused(tasks[2])
    assert error.code is StatusCode.RESOURCE_EXHAUSTED
    assert "--queue-limit" in error.message
    assert "retry in 1.0 s" in error.message
    assert error.trailers == (("grpc-retry-pushback-ms", "1000"),)
    assert scene.shed("full") == 1
    other = scene.start("b")
    assert (await refused(tasks[1])).code is StatusCode.RESOURCE_EXHAUSTED
    for task in (tasks[0], other):
        task.cancel()
    await settle()
    assert scene.is_clean()


async def test_time_alone_ends_a_wait() -> None:
    scene = Scene(places=0, seconds=7.0)
    patient, limited = scene.start("a"), scene.start("b", timeout=3.0)
    await settle()
    scene.now = 2.95  # the answer is given a little before the deadline
    error = await refused(limited)
    assert error.code is StatusCode.RESOURCE_EXHAUSTED
    assert "before its deadline, 3.0 s after it came" in error.message
    assert not patient.done()
    scene.now = 7.0
    error = await refused(patient)
    assert "within 7 s (--queue-seconds)" in error.message
    assert scene.shed("expired") == 2
    assert scene.is_clean()


async def test_who_waits_waited_or_was_refused_counts_for_scaling() -> None:
    scene = Scene(places=0, seconds=7.0)
    first, second = scene.start("a"), scene.start("b", timeout=3.0)
    await settle()
    scene.now = 2.0
    assert scene.queues.waiting_for(MODEL) == (2, 4.0)
    scene.now = 3.0
    await refused(second)
    scene.now = 4.0
    assert scene.queues.waiting_for(MODEL) == (1, 4.0)
    scene.places = 1
    await asyncio.wait_for(first, 5)
    assert scene.queues.waiting_for(MODEL) == (0, 0.0)
    counted = scene.tally.take([], 0, 0.0)
    assert (counted.requests, counted.waited_seconds) == (2, 7.0)


async def test_who_cannot_be_in_time_is_told_at_once() -> None:
    scene = Scene(places=1)
    go_on = asyncio.Event()
    first = scene.start("a", go_on)
    await settle()
    scene.now = 4.0
    go_on.set()
    await first
    blocking = scene.start("a", asyncio.Event())
    await settle()
    error = await refused(scene.start("b", timeout=4.5))
    assert "cannot be finished before its deadline" in error.message
    assert scene.shed("late") == 1
    blocking.cancel()
    await settle()
    assert scene.is_clean()


async def test_a_deadline_of_the_turn_alone_leaves_out_how_long_requests_take() -> None:
    scene = Scene(places=0)
    scene.queue.left(4.0)
    error = await refused(scene.start("a", timeout=4.5))
    assert "cannot be finished before its deadline" in error.message
    times = scene.queues.times(4.5)._replace(whole=False)
    routed = asyncio.create_task(scene.queue.enter(make("b"), times))
    await settle()
    assert not routed.done()
    scene.now = 4.45
    error = await refused(routed)
    assert "its turn did not come before its deadline, 4.5 s after it came" in error.message
    assert scene.is_clean()


async def test_who_leaves_without_a_turn_of_its_own_makes_room_at_once() -> None:
    scene = Scene(places=0)
    waiting = scene.start("a")
    await settle()
    assert not scene.order
    scene.places = 1
    scene.queue.left(None)
    await settle()
    assert scene.order == ["a"]
    await waiting
    assert scene.is_clean()


async def test_a_failure_inside_a_turn_says_nothing_of_how_long_turns_take() -> None:
    scene = Scene(places=1)

    async def fail() -> None:
        async with scene.queue.turn(make("a"), scene.queues.times(None)):
            scene.now = 100.0
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert scene.queue._turns._queue.service.seconds == 0


async def test_without_workers_a_request_waits_for_one_to_its_deadline() -> None:
    scene = Scene(places=None)
    served, refused_one = scene.start("a", timeout=50.0), scene.start("b", timeout=3.0)
    await settle()
    scene.now = 2.5
    scene.queue.move()
    await settle()
    assert not refused_one.done()
    scene.now = 3.0
    error = await refused(refused_one)
    assert error.code is StatusCode.UNAVAILABLE
    assert error.message == f"{NOWHERE.message}; it waited 3.0 s, and 1 others wait"
    assert error.trailers == ()
    assert scene.shed("no_worker") == 1
    scene.places = 1
    scene.queues.observe(MODEL, Departed("w", 1))
    await asyncio.wait_for(served, 5)
    assert scene.is_clean()


async def test_without_workers_no_speed_of_the_past_is_held_against_anyone() -> None:
    scene = Scene(places=1)
    go_on = asyncio.Event()
    first = scene.start("a", go_on)
    await settle()
    scene.now = 10.0
    go_on.set()
    await first
    scene.places = None
    scene.now += TICK_SECONDS
    task = scene.start("b", timeout=5.0)
    await settle()
    assert not task.done()
    scene.places = 1
    scene.queue.move()
    assert (await refused(task)).code is StatusCode.RESOURCE_EXHAUSTED  # with workers it is


async def test_what_no_worker_can_ever_take_does_not_wait() -> None:
    scene = Scene(places=0)
    scene.refusal = RefusedError(StatusCode.FAILED_PRECONDITION, "too long")
    assert await refused(scene.start("a")) is scene.refusal
    assert scene.is_clean()


async def test_a_first_worker_is_waited_for() -> None:
    scene = Scene()
    early = asyncio.create_task(scene.queues.card("m", scene.queues.times(60.0)))
    wrong = asyncio.create_task(scene.queues.card("n", scene.queues.times(60.0)))
    await settle()
    assert scene.queues.waiting() == {"": 2, MODEL: 0}
    assert scene.queues.waiting_for("m").requests == 2
    scene.known.append("m")
    scene.cards["m"] = make_card("m")
    assert (await asyncio.wait_for(early, 5)).model == "m"
    with pytest.raises(RefusedError) as caught:
        await asyncio.wait_for(wrong, 5)
    assert caught.value.code is StatusCode.NOT_FOUND
    assert (await scene.queues.card("m", scene.queues.times(0.0))).model == "m"
    assert scene.queues.waiting() == {"": 0, MODEL: 0}


async def test_a_first_worker_is_not_waited_for_without_end() -> None:
    scene = Scene(seconds=5.0, limit=1)
    scene.known.append("m")
    waiting = asyncio.create_task(scene.queues.card("", scene.queues.times(None)))
    await settle()
    assert scene.queues.waiting() == {MODEL: 1}
    with pytest.raises(RefusedError, match="has no worker now; 1 requests wait for one") as caught:
        await scene.queues.card("m", scene.queues.times(None))
    assert caught.value.code is StatusCode.UNAVAILABLE
    scene.now = 5.0
    with pytest.raises(RefusedError, match=r"'m' has no worker now; waited 5\.0 s") as caught:
        await asyncio.wait_for(waiting, 5)
    assert caught.value.code is StatusCode.UNAVAILABLE
    assert scene.shed("no_worker") == 2
    counted = scene.tally.take([], 0, 0.0)
    assert (counted.requests, counted.waited_seconds) == (1, 5.0)
    gone = asyncio.create_task(scene.queues.card("", scene.queues.times(None)))
    await settle()
    gone.cancel()
    await settle()
    assert scene.queues.waiting() == {MODEL: 0}


@given(seed=st.integers(0, 2**32), limit=st.integers(0, 8))
def test_whatever_happens_places_are_never_given_twice_and_nothing_is_left(
    seed: int, limit: int
) -> None:
    asyncio.run(_anything(random.Random(seed), limit))


async def _anything(chance: random.Random, limit: int) -> None:
    scene = Scene(places=2, limit=limit, seconds=5.0)
    tasks: list[asyncio.Task[None]] = []
    ends: list[asyncio.Event] = []
    most = 2
    for at in range(60):
        match chance.randrange(7):
            case 0 | 1:
                ends.append(asyncio.Event())
                timeout = chance.choice([None, 0.05, 2.0, 100.0])
                name = f"{chance.choice('abc')}{at}"
                priority = chance.randrange(-1, 2)
                task = scene.start(name, ends[-1], priority=priority, timeout=timeout)
                tasks.append(task)
            case 2 if tasks:
                chance.choice(tasks).cancel()
            case 3 if ends:
                chance.choice(ends).set()
            case 4:
                scene.places = chance.choice([None, 0, 1, 2, 3])
                most = max(most, scene.places or 0)
            case 5:
                scene.now += chance.choice([0.01, 1.0, 4.0])
            case 6:
                scene.queue.move()
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
            assert len(scene.inside) <= most
    for end in ends:
        end.set()
    scene.places = 1
    scene.queue.move()
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
    kinds = (type(None), RefusedError, asyncio.CancelledError)
    assert [each for each in results if not isinstance(each, kinds)] == []
    assert scene.inside == []
    assert scene.is_clean()
