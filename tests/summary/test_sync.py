"""KvSync from a worker's stream to the mirrors of two gateways, with a real Valkey that may die."""

import asyncio
import itertools

import grpc
import grpc.aio
import pytest
from radixgate.prefix import pack_hashes
from radixgate.v1.sync_pb2 import Ack, Delta, Report
from radixgate.v1.sync_pb2_grpc import KvSyncStub

from gateway.summary.events import Departed, Detached, Event, Loaded, Registration
from gateway.summary.redis import connect
from gateway.summary.sink import RegistrationError
from gateway.summary.store import pool_key
from tests.summary import values
from tests.summary.gateway import EventLog, GatewayHalf, WorkerHalf, gateway_half, worker_half
from tests.summary.valkey import Valkey, eventually

pytestmark = pytest.mark.slow

models = (f"sync-{number}" for number in itertools.count())


@pytest.fixture
def model() -> str:
    return next(models)


async def follows(gateway: GatewayHalf, worker: WorkerHalf) -> None:
    model, name = worker.hello.model, worker.hello.worker
    await eventually(
        lambda: gateway.held(model, name) == worker.held,
        f"the mirror of {gateway.address} to hold {worker.held} of {name}",
    )


async def in_redis(url: str, worker: WorkerHalf) -> set[int]:
    hello = worker.hello
    async with connect(url) as redis:
        members = await redis.smembers(
            f"{pool_key(hello.model)}:summary:{hello.worker}:{hello.epoch:020d}"
        )
        return {int.from_bytes(member, "little") for member in members}


async def redis_follows(url: str, worker: WorkerHalf) -> None:
    async with asyncio.timeout(10):
        while await in_redis(url, worker) != worker.held:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_two_gateways_agree_on_workers_of_either(valkey: Valkey, model: str) -> None:
    async with (
        gateway_half(valkey.url) as one,
        gateway_half(valkey.url) as two,
        worker_half(one.address, values.hello("a", 1, model=model)) as a,
        worker_half(two.address, values.hello("b", 1, model=model)) as b,
    ):
        for step in range(20):
            await a.hold(frozenset(range(step, step + 5)))
            await b.hold(frozenset(range(2 * step, 2 * step + 3)))
        for gateway in (one, two):
            await follows(gateway, a)
            await follows(gateway, b)
        assert a.resyncs == b.resyncs == 0
        assert await in_redis(valkey.url, a) == a.held


class Faulty:
    """An observer with a fault."""

    def observe(self, model: str, event: Event) -> None:
        raise LookupError(model)


async def test_a_fault_of_an_observer_is_no_fault_of_redis(
    valkey: Valkey, model: str, caplog: pytest.LogCaptureFixture
) -> None:
    later = EventLog()
    async with (
        gateway_half(valkey.url, observers=[Faulty(), later]) as one,
        worker_half(one.address, values.hello("a", 1, model=model)) as a,
    ):
        await a.hold(frozenset({1, 2}))
        await follows(one, a)
        await eventually(
            lambda: any(isinstance(event, Loaded) for event in later.events), "others to hear"
        )
        assert not one.pools.problem
        assert a.resyncs == 0
    assert f"pool {model}: Faulty failed to take Registered" in caplog.text


async def test_a_gateway_that_starts_later_knows_all(valkey: Valkey, model: str) -> None:
    async with (
        gateway_half(valkey.url) as one,
        worker_half(one.address, values.hello("a", 1, model=model)) as a,
    ):
        await a.hold(frozenset({1, 2, 3}))
        await follows(one, a)
        async with gateway_half(valkey.url) as late:
            await follows(late, a)


async def test_a_lost_delta_is_healed_by_a_snapshot(valkey: Valkey, model: str) -> None:
    async with (
        gateway_half(valkey.url) as gateway,
        worker_half(gateway.address, values.hello("a", 1, model=model), loads=False) as a,
    ):
        await a.hold(frozenset({1, 2, 3}))
        await a.hold(frozenset({4, 5, 6, 7}), lose=True)
        await a.hold(frozenset({5, 6, 7, 8, 9}))
        await follows(gateway, a)
        assert a.resyncs == 1
        assert "Delta 3 where 2 was expected" in a.acks[-2].message


async def test_a_load_with_another_digest_is_healed_by_a_snapshot(
    valkey: Valkey, model: str
) -> None:
    async with (
        gateway_half(valkey.url) as gateway,
        worker_half(gateway.address, values.hello("a", 1, model=model), loads=False) as a,
    ):
        await a.hold(frozenset({1, 2}))
        a.held = frozenset({3})
        await a.send_load()
        await follows(gateway, a)


async def test_a_worker_goes_on_after_what_the_summary_holds(valkey: Valkey, model: str) -> None:
    async with gateway_half(valkey.url) as gateway:
        async with worker_half(gateway.address, values.hello("a", 1, model=model)) as a:
            await a.hold(frozenset({1, 2}))
            await follows(gateway, a)
        again = values.hello("a", 1, seq=1, model=model)
        async with worker_half(gateway.address, again, held=a.held) as a:
            assert (a.acks[0].action, a.acks[0].seq) == (Ack.ACTION_CONTINUE, 1)
            assert a.acks[0].lease_ms == 5_000
            await a.hold(frozenset({2, 3}))
            await follows(gateway, a)
            assert a.resyncs == 0


async def test_a_restarted_worker_is_not_credited_with_its_old_life(
    valkey: Valkey, model: str
) -> None:
    async with (
        gateway_half(valkey.url) as gateway,
        worker_half(gateway.address, values.hello("a", 1, model=model)) as old,
    ):
        await old.hold(frozenset({1, 2}))
        await follows(gateway, old)
        async with worker_half(gateway.address, values.hello("a", 2, model=model)) as new:
            await follows(gateway, new)
            assert await in_redis(valkey.url, old) == set()
            await eventually(old.stream.done, "the old stream to be refused")
            assert await old.stream.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert "epoch 1 is over, epoch 2 has registered" in await old.stream.details()


async def test_a_broken_stream_is_told_to_all_and_a_drained_worker_departs(
    valkey: Valkey, model: str
) -> None:
    async with gateway_half(valkey.url) as one, gateway_half(valkey.url) as two:
        async with worker_half(one.address, values.hello("a", 1, model=model)) as a:
            await a.hold(frozenset({1}))
            await follows(two, a)
        await eventually(lambda: Detached("a", 1) in two.log.events, "Detached")
        assert two.held(model, "a") == {1}

        again = values.hello("a", 1, seq=1, model=model)
        async with worker_half(one.address, again, held=a.held) as a:
            assert not any(ack.draining for ack in a.acks)
            a.draining = True
            await eventually(lambda: a.acks[-1].draining, "the confirmation")
            await eventually(
                lambda: any(
                    isinstance(event, Loaded) and event.load.draining for event in two.log.events
                ),
                "the draining load",
            )
        await eventually(lambda: Departed("a", 1) in two.log.events, "Departed")
        assert two.held(model, "a") is None
        assert one.held(model, "a") is None


async def test_redis_dies_and_comes_back_empty(own_valkey: Valkey, model: str) -> None:
    async with (
        gateway_half(own_valkey.url) as one,
        gateway_half(own_valkey.url) as two,
        worker_half(one.address, values.hello("a", 1, model=model)) as a,
        worker_half(two.address, values.hello("b", 1, model=model)) as b,
    ):
        await a.hold(frozenset(range(10)))
        await b.hold(frozenset(range(5)))
        for gateway in (one, two):
            await follows(gateway, a)
            await follows(gateway, b)

        own_valkey.kill()
        await eventually(lambda: bool(one.pools.problem and two.pools.problem), "problems")
        before = b.held
        await a.hold(frozenset(range(5, 20)))
        await b.hold(frozenset({1}))
        await follows(one, a)
        await follows(two, b)
        assert one.held(model, "b") == before, "the last good mirror is kept"

        async with worker_half(one.address, values.hello("new", 1, model=model)) as new:
            await new.hold(frozenset({42}))
            await follows(one, new)

            own_valkey.start()
            for worker in (a, b, new):
                for gateway in (one, two):
                    await follows(gateway, worker)
            for worker in (a, b, new):
                await redis_follows(own_valkey.url, worker)
            await eventually(lambda: not one.pools.problem + two.pools.problem, "no problems")
            for pool in (*one.pools, *two.pools):
                pool.mirror.check_integrity()


async def test_redis_forgets_everything_while_it_runs(own_valkey: Valkey, model: str) -> None:
    async with (
        gateway_half(own_valkey.url) as gateway,
        worker_half(gateway.address, values.hello("a", 1, model=model)) as a,
    ):
        await a.hold(frozenset(range(10)))
        await follows(gateway, a)
        async with connect(own_valkey.url) as redis:
            await redis.flushall()
        await redis_follows(own_valkey.url, a)
        assert gateway.held(model, "a") == a.held


async def test_without_redis_from_the_start(own_valkey: Valkey, model: str) -> None:
    own_valkey.kill()
    async with (
        gateway_half(own_valkey.url) as gateway,
        worker_half(
            gateway.address,
            values.hello("a", 1, seq=3, model=model),
            held=frozenset({1, 2}),
            loads=False,
        ) as a,
    ):
        assert (a.acks[0].action, a.acks[0].seq) == (Ack.ACTION_CONTINUE, 0)
        await a.send_load()
        await follows(gateway, a)
        await a.hold(frozenset({2, 3}))
        await follows(gateway, a)
        unlike = Report(hello=values.hello("b", 1, model=model, stride=32))
        code, details = await refusal(gateway, unlike)
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "stride 32" in details
        assert "stride 64" in details


async def refusal(gateway: GatewayHalf, *reports: Report) -> tuple[grpc.StatusCode, str]:
    async with grpc.aio.insecure_channel(gateway.address) as channel:
        stream = KvSyncStub(channel).Sync(iter(reports))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            async for _ in stream:
                pass
        return refused.value.code(), refused.value.details() or ""


@pytest.mark.parametrize(
    ("reports", "words"),
    [
        ([], "first report of a stream must be a Hello, got None"),
        ([Report(load=values.load(0, []))], "must be a Hello, got load"),
        ([Report(hello=values.hello("", 1))], "lacks worker"),
        ([Report(hello=values.hello("a", 0))], "lacks epoch"),
        ([Report(hello=values.hello("a", 1, model="x}y"))], "braces"),
        ([Report(hello=values.hello("a", 1))] * 2, "'a' sent hello where"),
        ([Report(hello=values.hello("a", 1)), Report()], "sent an empty report where"),
        (
            [Report(hello=values.hello("a", 1)), Report(delta=Delta(seq=1, stored=b"short"))],
            "5 bytes is not a multiple of 8",
        ),
        (
            [
                Report(hello=values.hello("a", 1)),
                Report(delta=Delta(seq=1, stored=pack_hashes([7, 7]))),
            ],
            "names a prefix hash twice",
        ),
    ],
)
async def test_reports_that_break_the_protocol(
    valkey: Valkey, reports: list[Report], words: str
) -> None:
    async with gateway_half(valkey.url) as gateway:
        code, details = await refusal(gateway, *reports)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert words in details


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RegistrationError("another tokenizer"), grpc.StatusCode.FAILED_PRECONDITION),
        (ConnectionError("no worker there"), grpc.StatusCode.UNAVAILABLE),
    ],
)
async def test_a_worker_that_is_not_admitted_is_not_registered(
    valkey: Valkey, model: str, error: Exception, code: grpc.StatusCode
) -> None:
    async def refuse(registration: Registration) -> None:
        raise error

    async with gateway_half(valkey.url, admit=refuse) as gateway:
        hello = Report(hello=values.hello("a", 1, model=model))
        assert await refusal(gateway, hello) == (code, str(error))
        assert gateway.log.events == []
        async with connect(valkey.url) as redis:
            assert await redis.keys(f"{pool_key(model)}*") == []


async def test_closing_ends_streams_so_that_workers_turn_to_another_gateway(
    valkey: Valkey, model: str
) -> None:
    async with (
        gateway_half(valkey.url) as gateway,
        worker_half(gateway.address, values.hello("a", 1, model=model)) as a,
    ):
        await gateway.service.close()
        await eventually(a.stream.done, "the stream to end")
        assert await a.stream.code() is grpc.StatusCode.UNAVAILABLE
