"""Reservations of one gateway on their way to another, with a real Valkey that may die."""

import asyncio
import itertools

import pytest
from radixgate.prefix import PrefixHash, unpack_hashes
from radixgate.v1.peer_pb2 import Announcement, Reserved

from gateway.summary.outbox import Outbox
from gateway.summary.publisher import stream_key
from gateway.summary.redis import connect
from tests.summary import values
from tests.summary.gateway import GatewayHalf, gateway_half, worker_half
from tests.summary.test_sync import follows
from tests.summary.valkey import Valkey, eventually

pytestmark = pytest.mark.slow

models = (f"shared-{number}" for number in itertools.count())
BOUNDARIES = [PrefixHash(1), PrefixHash(2**63)]


@pytest.fixture
def model() -> str:
    return next(models)


def outbox(gateway: GatewayHalf, model: str) -> Outbox:
    return gateway.pools.get(model).outbox


def heard(gateway: GatewayHalf, model: str) -> list[Announcement]:
    return gateway.listeners[model].announcements


def reservations(gateway: GatewayHalf, model: str) -> list[Reserved]:
    return [reserved for each in heard(gateway, model) for reserved in each.reserved]


async def test_reservations_and_releases_reach_the_others_alone(valkey: Valkey, model: str) -> None:
    async with (
        gateway_half(valkey.url) as one,
        gateway_half(valkey.url) as two,
        gateway_half(valkey.url) as three,
        worker_half(one.address, values.hello("a", 7, model=model)) as a,
    ):
        for gateway in (one, two, three):
            await follows(gateway, a)
        id_ = outbox(one, model).reserve("a", 7, 100, BOUNDARIES, 64)
        for gateway in (two, three):
            await eventually(lambda it=gateway: reservations(it, model) != [], "Reserved")  # type: ignore[misc]
            (reserved,) = reservations(gateway, model)
            assert (reserved.id, reserved.worker, reserved.tokens) == (id_, "a", 100)
            assert unpack_hashes(reserved.boundaries) == BOUNDARIES
        outbox(one, model).release(id_)
        await eventually(
            lambda: [id_] in [list(each.released) for each in heard(two, model)], "Released"
        )
        assert heard(one, model) == []
        assert two.pools.get(model).heard == 1


async def test_a_burst_takes_few_entries_and_what_ends_meanwhile_takes_none(
    valkey: Valkey, model: str
) -> None:
    async with (
        gateway_half(valkey.url) as one,
        gateway_half(valkey.url) as two,
        worker_half(one.address, values.hello("a", 7, model=model)) as a,
        connect(valkey.url) as redis,
    ):
        await follows(two, a)
        ids = [outbox(one, model).reserve("a", 7, 1, BOUNDARIES, 64) for _ in range(500)]
        for id_ in ids[::2]:
            outbox(one, model).release(id_)
        await eventually(lambda: len(reservations(two, model)) == 250, "250 reservations")
        assert [reserved.id for reserved in reservations(two, model)] == ids[1::2]
        assert await redis.xlen(stream_key(model)) == 1


async def test_a_reservation_for_a_life_that_is_over_is_not_heard(
    valkey: Valkey, model: str
) -> None:
    async with (
        gateway_half(valkey.url) as one,
        gateway_half(valkey.url) as two,
        worker_half(one.address, values.hello("a", 7, model=model)) as a,
    ):
        await follows(two, a)
        for worker, epoch in (("a", 6), ("unknown", 7), ("a", 7)):
            outbox(one, model).reserve(worker, epoch, 1, BOUNDARIES, 64)
        await eventually(lambda: heard(two, model) != [], "an announcement")
        assert [reserved.id for reserved in reservations(two, model)] == [3]


async def test_without_redis_reservations_are_dropped_and_counted_and_then_shared_again(
    own_valkey: Valkey, model: str
) -> None:
    async with (
        gateway_half(own_valkey.url) as one,
        gateway_half(own_valkey.url) as two,
        worker_half(one.address, values.hello("a", 7, model=model)) as a,
    ):
        await follows(two, a)
        outbox(one, model).reserve("a", 7, 1, BOUNDARIES, 64)
        await eventually(lambda: len(reservations(two, model)) == 1, "the first")
        own_valkey.kill()
        outbox(one, model).reserve("a", 7, 1, BOUNDARIES, 64)
        await eventually(lambda: outbox(one, model).dropped == 1, "the drop")
        own_valkey.start()
        await eventually(lambda: not one.pools.problem + two.pools.problem, "Redis to be back")
        await follows(two, a)

        async def share_until_heard() -> None:
            while len(reservations(two, model)) == 1:
                outbox(one, model).reserve("a", 7, 1, BOUNDARIES, 64)
                await asyncio.sleep(0.05)

        await asyncio.wait_for(share_until_heard(), 10)
        first, *_, last = heard(two, model)
        assert last.number > first.number + 1, "nobody would know that an announcement was lost"
