"""Demand through a real Redis, that may go, come back empty, or have another clock."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from radixgate.v1.demand_pb2 import Demand
from redis.asyncio import Redis

from gateway.scale.demand import Demands, Waiting
from gateway.scale.sharing import Sharing, stream_key
from gateway.scale.window import Spans
from gateway.summary.redis import Patience, connect
from tests.scale.test_tally import outcome, prompt, worker
from tests.summary.valkey import Valkey, eventually

pytestmark = pytest.mark.slow

MODEL = "m"


class Counting:
    """A gateway that only counts."""

    def __init__(self, name: str, redis: Redis) -> None:
        self.waiting = Waiting(0, 0.0)
        self.now = 1000.0
        fleet = cast(Any, SimpleNamespace(candidates=lambda _: [worker()]))
        self.demands = Demands(
            name,
            fleet,
            size_of=lambda _: 2,
            waiting_of=lambda _: self.waiting,
            clock=lambda: self.now,
            epoch=0.0,
            spans=Spans(600.0),
        )
        self.sharing = Sharing(redis, self.demands)

    def serve(self, name: str, cached: int) -> None:
        self.demands.tally(MODEL).settled(outcome(name, 100, cached, 0))

    async def share(self) -> None:
        await self.sharing.share([MODEL])

    def values(self) -> dict[str, float]:
        return {name: round(value, 2) for name, value in self.demands.values(MODEL).items()}

    def complete(self) -> float:
        return self.demands.pool(MODEL).window.complete_seconds(self.demands.now())


@pytest.fixture
async def redis(valkey: Valkey) -> AsyncIterator[Redis]:
    client = connect(valkey.url, Patience(1.0))
    yield client
    await client.aclose()


async def test_all_have_the_sum_of_what_each_counted(redis: Redis) -> None:
    one, two = Counting("one", redis), Counting("two", redis)
    one.serve("a", 100)
    two.serve("a", 50)
    two.serve("b", 50)
    for gateway in (one, two, one):
        await gateway.share()
    assert set(one.values()) == {"a", "b"}
    assert one.values() == two.values()
    assert one.values()["a"] == pytest.approx(3 * one.values()["b"], rel=0.1)
    late = Counting("late", redis)
    await late.share()
    assert late.values() == one.values()
    assert abs(late.demands.now() - one.demands.now()) < 5


async def test_the_stream_is_short_and_ends_by_itself(redis: Redis) -> None:
    one = Counting("one", redis)
    for _ in range(3):
        await one.share()
    assert await redis.xlen(stream_key(MODEL)) == 3
    assert 0 < await redis.ttl(stream_key(MODEL)) <= 1200


async def test_without_redis_its_own_counts_go_on_and_are_not_all(
    redis: Redis, valkey: Valkey
) -> None:
    one, two = Counting("one", redis), Counting("two", redis)
    two.serve("b", 100)
    await two.share()
    await one.share()
    one.now += 4
    valkey.kill()
    one.serve("a", 100)
    await one.share()
    assert set(one.values()) == {"a", "b"}
    assert one.complete() == 0
    valkey.start()
    await one.share()
    one.now += 1
    assert one.complete() == pytest.approx(1, abs=0.1)
    assert set(one.values()) == {"a", "b"}


async def test_what_was_published_but_not_answered_counts_once(redis: Redis) -> None:
    one = Counting("one", redis)
    await one.share()
    one.serve("a", 100)
    pool = one.demands.pool(MODEL)
    lost = one.demands.take(MODEL)
    await redis.xadd(stream_key(MODEL), {"demand": lost.SerializeToString()})
    pool.add_alone(one.demands.now(), lost)
    before = pool.window.prompt_tokens
    await one.share()
    assert pool.window.prompt_tokens == before == 100


@pytest.mark.parametrize(
    "fields", [{"demand": b"\xff\xff"}, {"other": b""}, {"demand": Demand(level=65, stride=64)}]
)
async def test_an_entry_that_is_none_is_passed_over(redis: Redis, fields: dict[str, Any]) -> None:
    one, two = Counting("one", redis), Counting("two", redis)
    for name, value in fields.items():
        written = value.SerializeToString() if isinstance(value, Demand) else value
        await redis.xadd(stream_key(MODEL), {name: written})
    two.serve("b", 100)
    for _ in range(2):
        await two.share()
        await one.share()
    assert set(one.values()) == set(two.values()) == {"b"}
    assert one.demands.pool(MODEL).window.prompt_tokens == 100


async def test_boundaries_are_sampled_while_redis_takes_its_time() -> None:
    asked = asyncio.Event()

    async def never(*_: object, **__: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    one = Counting("one", cast(Any, SimpleNamespace(xadd=never)))
    running = asyncio.create_task(one.sharing.run(lambda: [MODEL]))
    await asked.wait()
    one.demands.tally(MODEL).entered(prompt(1), 0.0)
    await eventually(lambda: not one.demands.tally(MODEL).sample(0), "its boundaries")
    running.cancel()


async def test_another_redis_whose_clock_is_behind_is_read(redis: Redis) -> None:
    one, two = Counting("one", redis), Counting("two", redis)
    await one.share()
    one.demands.pool(MODEL).last_id = "99999999999999-0"
    two.serve("b", 100)
    await two.share()
    await one.share()
    assert set(one.values()) == {"b"}


async def test_who_waits_here_counts_at_once(redis: Redis) -> None:
    one = Counting("one", redis)
    await one.share()
    assert not one.demands.signals(MODEL).traffic
    one.waiting = Waiting(2, 1.0)
    assert one.demands.signals(MODEL).waiting == 2
    assert Counting("other", redis).demands.signals("unknown").size == 2
