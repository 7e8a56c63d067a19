"""The store and two gateways' mirrors against a slow dictionary model, in a real Valkey.

Workers change their sets and report; reports are lost, doubled, of an older life, wrong; Redis
loses single workers (a lease) or everything. After each step the verdict, the set in Redis and the
mirrors must be those of the model.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from radixgate.v1.sync_pb2 import Snapshot
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.summary.outbox import Outbox
from gateway.summary.pool import Pool
from gateway.summary.reader import PoolReader
from gateway.summary.redis import connect, connect_to_follow
from gateway.summary.sink import (
    Outcome,
    PoolMismatchError,
    StaleEpochError,
    Verdict,
)
from gateway.summary.store import SummaryStore, pool_key
from tests.summary import values
from tests.summary.test_mirror import SetListener
from tests.summary.valkey import Valkey, eventually

pytestmark = pytest.mark.slow

pool_names = (f"pool-{number}" for number in itertools.count())
LEASE_MS = 60_000


@dataclass
class ModelWorker:
    """A worker's own truth, and what the model says of its summary in Redis and in the mirrors."""

    epoch: int = 0
    seq: int = 0
    held: frozenset[int] = frozenset()
    in_redis: tuple[int, int, frozenset[int]] | None = None
    load_in_redis: bool = False
    in_mirror: tuple[int, int, frozenset[int]] | None = None
    newest: int = 0
    before: frozenset[int] = frozenset()


@dataclass
class Harness:
    model: str
    redis: Redis
    store: SummaryStore
    reader: PoolReader
    pools: list[Pool]
    listeners: list[SetListener]
    workers: dict[str, ModelWorker] = field(
        default_factory=lambda: {"a": ModelWorker(), "b": ModelWorker()}
    )

    async def check(self) -> None:
        await self._caught_up()
        for name, worker in self.workers.items():
            record = await self.reader.record(name)
            stored = record and (record.registration.epoch, record.seq, record.hashes)
            assert stored == worker.in_redis, name
            assert (record is not None and record.load is not None) == worker.load_in_redis
            for pool, listener in zip(self.pools, self.listeners, strict=True):
                await eventually(
                    lambda pool=pool, name=name, worker=worker: (  # type: ignore[misc]
                        _state(pool, name) == worker.in_mirror
                    ),
                    f"mirror of {name} to be {worker.in_mirror}",
                )
                pool.mirror.check_integrity()
                held = worker.in_mirror[2] if worker.in_mirror else set()
                assert listener.held.get(name, set()) == held

    async def _caught_up(self) -> None:
        # NOTE: a departure that falls into a gap would be noticed only when the lease passes.
        end = await self.reader.end()
        if end.n is not None:
            for pool in self.pools:
                await eventually(
                    lambda tail=pool.tail: tail.position == end,  # type: ignore[misc]
                    f"tail to be at {end}",
                )


def _state(pool: Pool, worker: str) -> tuple[int, int, frozenset[int]] | None:
    summary = pool.mirror.get(worker)
    return summary and (summary.epoch, summary.seq, frozenset(summary.hashes))


@asynccontextmanager
async def harness(valkey: Valkey) -> AsyncIterator[Harness]:
    model = next(pool_names)
    async with connect(valkey.url) as redis, connect_to_follow(valkey.url) as follow:
        store = SummaryStore(redis, model, LEASE_MS)
        listeners = [SetListener(), SetListener()]
        pools = [
            Pool(
                model=model,
                store=store,
                reader=PoolReader(follow, model),
                lease=LEASE_MS / 1_000,
                block=0.5,
                listener=listener,
                outbox=Outbox(f"gateway {number}"),
                finished=lambda _: None,
                observers=[],
            )
            for number, listener in enumerate(listeners)
        ]
        tails = [asyncio.create_task(pool.tail.run()) for pool in pools]
        for pool in pools:
            await pool.tail.settled.wait()
        yield Harness(model, redis, store, PoolReader(redis, model), pools, listeners)
        for tail in tails:
            tail.cancel()
        await asyncio.gather(*tails, return_exceptions=True)


# Few sets, so that a worker often comes back to one: a lost report then shows only in the seq.
hash_sets = st.sampled_from(
    [frozenset(held) for held in ([], [0], [1, 2**63, 2**64 - 1], [0, 1, 2**64 - 1])]
)
STEPS = {
    "hello": st.booleans(),
    "change": st.tuples(hash_sets, st.sampled_from(["sent", "twice", "lost", "wrong digest"])),
    "load": st.none(),
    "snapshot": st.tuples(st.integers(1, 2), st.sampled_from(["whole", "chunk lost", "wrong"])),
    "old life": st.sampled_from(["hello", "delta", "load", "snapshot", "leave"]),
    "leave": st.booleans(),
    "lease passed": st.none(),
    "redis lost all": st.none(),
    "stream trimmed": st.none(),
}
# Long plans of mostly healthy steps: a loss is only seen by what follows it.
BOTH_JOIN = [("hello", "a", True), ("hello", "b", True)]
OFTEN = ["change", "change", "change", "change", "load", "snapshot", "hello"]
steps = st.sampled_from([*OFTEN, *STEPS]).flatmap(
    lambda kind: st.tuples(st.just(kind), st.sampled_from(["a", "b"]), STEPS[kind])
)


@given(st.lists(steps, min_size=30, max_size=60))
# NOTE: no shrinking, since each failing run waits for a mirror that never gets there.
@settings(max_examples=40, deadline=None, phases=(Phase.reuse, Phase.generate))
def test_store_and_mirrors_follow_the_model(
    valkey: Valkey, plan: list[tuple[str, str, object]]
) -> None:
    async def run() -> None:
        async with harness(valkey) as it:
            for kind, name, argument in [*BOTH_JOIN, *plan]:
                await STEP_OF[kind](it, name, argument)
                await it.check()

    asyncio.run(run())


async def _hello(it: Harness, name: str, new_life: object) -> None:
    worker = it.workers[name]
    if new_life or not worker.epoch:
        worker.epoch, worker.seq, worker.held = worker.epoch + 10**18 + 1, 0, frozenset()
    outcome = await it.store.register(values.hello(name, worker.epoch, model=it.model))
    if worker.in_redis is None or worker.in_redis[0] != worker.epoch:
        worker.in_redis = (worker.epoch, 0, frozenset())
        worker.load_in_redis = False
    worker.newest = worker.epoch
    if worker.in_mirror is None or worker.in_mirror[0] != worker.epoch:
        worker.in_mirror = worker.in_redis
    assert outcome == Outcome(Verdict.OK, worker.in_redis[1])


async def _change(it: Harness, name: str, argument: object) -> None:
    worker = it.workers[name]
    if not worker.epoch:
        return
    after, fate = argument  # type: ignore[misc]
    worker.before, worker.held, worker.seq = worker.held, after, worker.seq + 1
    report = values.delta(worker.seq, worker.before, after)
    if fate == "lost":
        return
    if fate == "wrong digest":
        report.digest.xor ^= 1
    for _ in range(2 if fate == "twice" else 1):
        outcome = await it.store.apply(name, worker.epoch, report)
        follows = worker.in_redis is not None and worker.in_redis[:2] == (
            worker.epoch,
            worker.seq - 1,
        )
        again = worker.in_redis is not None and worker.in_redis[:2] == (worker.epoch, worker.seq)
        if worker.in_redis is None:
            assert outcome.verdict is Verdict.UNKNOWN
        elif (follows and fate != "wrong digest") or again:
            worker.in_redis = worker.in_mirror = (worker.epoch, worker.seq, worker.held)
            assert outcome == Outcome(Verdict.OK, worker.seq)
        else:
            assert outcome.verdict is Verdict.RESYNC
            assert outcome.seq == worker.in_redis[1]


async def _load(it: Harness, name: str, _: object) -> None:
    worker = it.workers[name]
    if not worker.epoch:
        return
    outcome = await it.store.load(name, worker.epoch, values.load(worker.seq, worker.held))
    if worker.in_redis is None:
        assert outcome.verdict is Verdict.UNKNOWN
        return
    worker.load_in_redis = True
    if worker.in_redis == (worker.epoch, worker.seq, worker.held):
        assert outcome.verdict is Verdict.OK
    else:
        assert outcome.verdict is Verdict.RESYNC


async def _snapshot(it: Harness, name: str, argument: object) -> None:
    worker = it.workers[name]
    if not worker.epoch:
        return
    chunk, fate = argument  # type: ignore[misc]
    chunks = values.snapshot(worker.seq, worker.held, chunk)
    if fate == "wrong":
        chunks[-1].digest.count += 1
    if fate == "chunk lost":
        if len(chunks) == 1:
            return
        del chunks[-2]
    outcomes = [await it.store.stage(name, worker.epoch, part) for part in chunks]
    if worker.in_redis is None:
        assert {outcome.verdict for outcome in outcomes} == {Verdict.UNKNOWN}
    elif fate == "whole":
        worker.in_redis = worker.in_mirror = (worker.epoch, worker.seq, worker.held)
        assert {outcome.verdict for outcome in outcomes} == {Verdict.OK}
    else:
        assert outcomes[-1].verdict is Verdict.RESYNC


async def _old_life(it: Harness, name: str, report: object) -> None:
    worker = it.workers[name]
    if not worker.newest:
        return
    old = worker.newest - 1
    calls = {
        "hello": lambda: it.store.register(values.hello(name, old, model=it.model)),
        "delta": lambda: it.store.apply(name, old, values.delta(1, [], [1])),
        "load": lambda: it.store.load(name, old, values.load(0, [])),
        "snapshot": lambda: it.store.stage(name, old, values.snapshot(9, [1], 1)[0]),
        "leave": lambda: it.store.leave(name, old, departed=True),
    }
    with pytest.raises(StaleEpochError, match=f"epoch {worker.newest} has registered"):
        await calls[str(report)]()


async def _leave(it: Harness, name: str, departed: object) -> None:
    worker = it.workers[name]
    if not worker.epoch:
        return
    outcome = await it.store.leave(name, worker.epoch, departed=bool(departed))
    known = worker.in_redis is not None
    assert outcome.verdict is (Verdict.OK if known else Verdict.UNKNOWN)
    if known and departed:
        worker.in_redis = worker.in_mirror = None
        worker.load_in_redis = False


async def _lease_passed(it: Harness, name: str, _: object) -> None:
    worker = it.workers[name]
    pool = pool_key(it.model)
    await it.redis.delete(f"{pool}:worker:{name}", f"{pool}:summary:{name}:{worker.epoch:020d}")
    worker.in_redis = None
    worker.load_in_redis = False


async def _redis_lost_all(it: Harness, _name: str, _: object) -> None:
    await it.redis.flushall()
    for worker in it.workers.values():
        worker.in_redis, worker.load_in_redis, worker.newest = None, False, 0


async def _stream_trimmed(it: Harness, _name: str, _: object) -> None:
    await it.redis.xtrim(f"{pool_key(it.model)}:events", maxlen=0, approximate=False)


STEP_OF = {
    "hello": _hello,
    "change": _change,
    "load": _load,
    "snapshot": _snapshot,
    "old life": _old_life,
    "leave": _leave,
    "lease passed": _lease_passed,
    "redis lost all": _redis_lost_all,
    "stream trimmed": _stream_trimmed,
}


async def test_events_that_a_reader_missed_are_noticed_and_the_pool_is_read_again(
    valkey: Valkey,
) -> None:
    async with harness(valkey) as it:
        await _hello(it, "a", True)
        await _hello(it, "b", True)
        await it.check()
        pool, worker = pool_key(it.model), it.workers["a"]
        async with it.redis.pipeline(transaction=True) as transaction:
            # What a Delta leaves behind whose event was trimmed before anyone read it.
            xor = (7).to_bytes(8, "little")
            transaction.hset(f"{pool}:worker:a", mapping={"seq": 1, "count": 1, "xor": xor})
            transaction.sadd(f"{pool}:summary:a:{worker.epoch:020d}", xor)
            transaction.incr(f"{pool}:events:n")
            await transaction.execute()
        worker.seq, worker.held = 1, frozenset({7})
        worker.in_redis = worker.in_mirror = (worker.epoch, 1, worker.held)
        await _load(it, "b", None)
        await it.check()


async def test_a_whole_cache_changes_at_once(valkey: Valkey) -> None:
    async with harness(valkey) as it:
        await _hello(it, "a", True)
        everything = frozenset(range(2**63, 2**63 + 30_000))
        await _change(it, "a", (everything, "sent"))
        await it.check()
        await _change(it, "a", (frozenset(), "sent"))
        await it.check()
        await _change(it, "a", (everything, "lost"))
        await _snapshot(it, "a", (20_000, "whole"))
        await it.check()


async def test_a_worker_that_is_unlike_its_pool_is_refused_naming_both(valkey: Valkey) -> None:
    async with harness(valkey) as it:
        await it.store.register(values.hello("a", 1, model=it.model))
        with pytest.raises(PoolMismatchError) as refused:
            await it.store.register(values.hello("b", 1, model=it.model, stride=32))
        assert "'b' has" in str(refused.value)
        assert "stride 32" in str(refused.value)
        assert "worker a there has" in str(refused.value)
        assert "stride 64" in str(refused.value)

        await it.store.leave("a", 1, departed=True)
        await it.store.register(values.hello("b", 1, model=it.model, stride=32))


async def test_a_worker_that_is_alone_may_come_back_with_another_shape(valkey: Valkey) -> None:
    async with harness(valkey) as it:
        await it.store.register(values.hello("a", 1, model=it.model))
        await it.store.register(values.hello("a", 2, model=it.model, stride=32))
        record = await it.reader.record("a")
        assert record is not None
        assert record.registration.stride == 32


async def test_everything_of_a_silent_worker_expires_with_its_lease(valkey: Valkey) -> None:
    async with harness(valkey) as it:
        brief = SummaryStore(it.redis, it.model, lease_ms=50)
        await brief.register(values.hello("a", 1, model=it.model))
        await brief.apply("a", 1, values.delta(1, [], [1, 2]))
        for part in values.snapshot(1, [1, 2], 1)[:-1]:
            await brief.stage("a", 1, part)
        pool = pool_key(it.model)
        keys = [f"{pool}:{kind}" for kind in ("worker:a", f"summary:a:{1:020d}")]
        keys.append(f"{pool}:staging:a:{1:020d}")
        assert await it.redis.exists(*keys) == 3
        async with asyncio.timeout(10):
            while await it.redis.exists(*keys):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (await brief.apply("a", 1, values.delta(2, [1, 2], [1]))).verdict is Verdict.UNKNOWN


async def test_malformed_hashes_are_an_error_and_change_nothing(valkey: Valkey) -> None:
    async with harness(valkey) as it:
        await _hello(it, "a", True)
        epoch = it.workers["a"].epoch
        cut = values.delta(1, [], [1])
        cut.stored = cut.stored[:-1]
        twice = values.delta(1, [], [1])
        twice.stored *= 2
        both = values.delta(1, [1], [])
        both.stored = both.removed[0].hashes
        for wrong in (cut, twice, both):
            with pytest.raises(ValueError, match="prefix hash"):
                await it.store.apply("a", epoch, wrong)
        with pytest.raises(ValueError, match="prefix hashes: 7 bytes"):
            await it.store.stage("a", epoch, Snapshot(hashes=b"1234567"))
        await it.check()


@pytest.mark.parametrize(
    "away", [["REPLICAOF", "127.0.0.1", "1"], ["CONFIG", "SET", "maxmemory", "1"]]
)
async def test_a_redis_that_may_not_write_gives_no_verdict(
    own_valkey: Valkey, away: list[str]
) -> None:
    """A verdict would be taken for the truth: that no one is registered, say."""
    async with connect(own_valkey.url) as redis:
        store = SummaryStore(redis, "m", LEASE_MS)
        await store.register(values.hello("a", 2, model="m"))
        await redis.execute_command(*away)
        for worker, epoch in (("a", 2), ("a", 1), ("unknown", 1)):
            for report in (
                store.register(values.hello(worker, epoch, model="m")),
                store.apply(worker, epoch, values.delta(1, [], [1])),
                store.load(worker, epoch, values.load(0, [])),
                store.stage(worker, epoch, values.snapshot(0, [], 1)[0]),
                store.leave(worker, epoch, departed=True),
            ):
                with pytest.raises(RedisError, match=r"read only replica|maxmemory"):
                    await report
