"""Each place where a summary can be wrong is made wrong behind everyone's back, and is repaired."""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from radixgate.prefix import PrefixHash, pack_hashes

from gateway.summary import audit
from gateway.summary.mirror import Summary
from gateway.summary.pool import MIRROR, SUMMARY, Pool
from gateway.summary.redis import connect
from gateway.summary.store import epoch_digits, pool_key
from tests.summary import values
from tests.summary.gateway import GatewayHalf, WorkerHalf, gateway_half, worker_half
from tests.summary.test_sync import follows, redis_follows
from tests.summary.valkey import Valkey, eventually

pytestmark = pytest.mark.slow

models = (f"audited-{number}" for number in itertools.count())
HELD = frozenset(range(1, 2000))
HELD_BEFORE, NEVER_HELD = 7, 2**63 + 7


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> str:
    # No audit but those that a test asks for.
    monkeypatch.setattr(audit, "AUDIT_SECONDS", 3_600.0)
    monkeypatch.setattr(audit, "LOOK_SECONDS", 0.02)
    return next(models)


def packed(name: int) -> bytes:
    return pack_hashes([name])


def mirror_of(pool: Pool) -> Summary:
    summary = pool.mirror.get("a")
    assert summary is not None
    return summary


async def remove_from_redis(redis: Any, _: Summary, pool: str) -> None:
    await redis.srem(f"{pool}:summary:a:{epoch_digits(1)}", packed(HELD_BEFORE))


async def add_to_redis(redis: Any, _: Summary, pool: str) -> None:
    await redis.sadd(f"{pool}:summary:a:{epoch_digits(1)}", packed(NEVER_HELD))


async def exchange_in_redis(redis: Any, it: Summary, pool: str) -> None:
    await remove_from_redis(redis, it, pool)
    await add_to_redis(redis, it, pool)


async def put_what_is_no_hash_into_redis(redis: Any, it: Summary, pool: str) -> None:
    await remove_from_redis(redis, it, pool)
    await redis.sadd(f"{pool}:summary:a:{epoch_digits(1)}", b"odd")


async def lose_in_redis(redis: Any, _: Summary, pool: str) -> None:
    await redis.delete(f"{pool}:summary:a:{epoch_digits(1)}")


async def change_the_digest_in_redis(redis: Any, _: Summary, pool: str) -> None:
    await redis.hset(f"{pool}:worker:a", "xor", packed(5))


async def remove_from_the_mirror(_: Any, it: Summary, pool: str) -> None:
    del it.hashes[PrefixHash(HELD_BEFORE)]


async def add_to_the_mirror(_: Any, it: Summary, pool: str) -> None:
    it.hashes[PrefixHash(NEVER_HELD)] = None


async def exchange_in_the_mirror(redis: Any, it: Summary, pool: str) -> None:
    await remove_from_the_mirror(redis, it, pool)
    await add_to_the_mirror(redis, it, pool)


Corrupt = Callable[[Any, Summary, str], Awaitable[None]]
SEEN_BY_REPORTS: list[tuple[Corrupt, str]] = [
    (remove_from_redis, SUMMARY),
    (add_to_redis, SUMMARY),
    (lose_in_redis, SUMMARY),
    (change_the_digest_in_redis, SUMMARY),
    (remove_from_the_mirror, MIRROR),
    (add_to_the_mirror, MIRROR),
]
SEEN_BY_AUDITS: list[tuple[Corrupt, str]] = [
    (exchange_in_redis, SUMMARY),
    (put_what_is_no_hash_into_redis, SUMMARY),
    (exchange_in_the_mirror, MIRROR),
]


async def corrupted(
    valkey: Valkey, gateway: GatewayHalf, a: WorkerHalf, corrupt: Corrupt
) -> tuple[Pool, dict[str, int]]:
    """The pool with a worker that was in sync, after `corrupt`; and the mismatches before it."""
    await a.hold(frozenset({NEVER_HELD + 1}))
    await a.hold(HELD)
    await follows(gateway, a)
    await redis_follows(valkey.url, a)
    pool = gateway.pools.get(a.hello.model)
    before = dict(pool.mismatches)
    async with connect(valkey.url) as redis:
        await corrupt(redis, mirror_of(pool), pool_key(a.hello.model))
    return pool, before


async def repaired(
    valkey: Valkey, gateway: GatewayHalf, a: WorkerHalf, place: str, before: dict[str, int]
) -> None:
    pool = gateway.pools.get(a.hello.model)
    await eventually(lambda: pool.mismatches[place] > before[place], f"a mismatch of the {place}")
    await redis_follows(valkey.url, a)
    await follows(gateway, a)
    assert gateway.listeners[a.hello.model].held["a"] == a.held
    pool.mirror.check_integrity()
    found = dict(pool.mismatches)
    assert found == before | {place: before[place] + 1}, "counted once, and nowhere else"
    await a.send_load()
    await a.hold(a.held | {99_999})
    await follows(gateway, a)
    assert dict(pool.mismatches) == found, "still not in sync"


@pytest.mark.parametrize(("corrupt", "place"), SEEN_BY_REPORTS)
async def test_what_a_digest_shows_is_seen_at_the_next_report(
    valkey: Valkey,
    model: str,
    corrupt: Corrupt,
    place: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "gateway.summary")
    async with (
        gateway_half(valkey.url) as gateway,
        worker_half(gateway.address, values.hello("a", 1, model=model), loads=False) as a,
    ):
        _, before = await corrupted(valkey, gateway, a, corrupt)
        await a.send_load()
        await repaired(valkey, gateway, a, place, before)
    shown = [record.getMessage() for record in caplog.records if "1999" in record.getMessage()]
    assert shown, "the log does not say what either side holds"


@pytest.mark.parametrize(("corrupt", "place"), SEEN_BY_AUDITS)
async def test_what_no_digest_shows_is_found_by_counting_again(
    valkey: Valkey,
    model: str,
    corrupt: Corrupt,
    place: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        gateway_half(valkey.url) as gateway,
        worker_half(gateway.address, values.hello("a", 1, model=model), loads=False) as a,
    ):
        pool, before = await corrupted(valkey, gateway, a, corrupt)
        await a.send_load()
        await eventually(lambda: len(a.acks) >= 4, "the load to be answered")
        assert dict(pool.mismatches) == before
        await pool.auditor.audit(mirror_of(pool))
        await a.send_load()
        await repaired(valkey, gateway, a, place, before)
        await pool.auditor.audit(mirror_of(pool))
        assert pool.auditor.audits == (2 if place == SUMMARY else 1)
        assert pool.mismatches[place] == before[place] + 1
    if corrupt is put_what_is_no_hash_into_redis:
        assert "what is no hash" in caplog.text
    elif place == SUMMARY:
        assert f"{NEVER_HELD:016x}" in caplog.text
        assert f"{HELD_BEFORE:016x}" in caplog.text
    else:
        assert "when counted again" in caplog.text


async def test_a_gateway_that_reads_a_summary_that_contradicts_its_record_says_so(
    valkey: Valkey, model: str
) -> None:
    async with (
        gateway_half(valkey.url) as one,
        worker_half(one.address, values.hello("a", 1, model=model), loads=False) as a,
    ):
        _, before = await corrupted(valkey, one, a, exchange_in_redis)
        async with gateway_half(valkey.url) as late:
            await eventually(lambda: late.held(model, "a") is not None, "the summary to be read")
            async with connect(valkey.url) as redis, asyncio.timeout(10):
                while not await redis.hexists(f"{pool_key(model)}:worker:a", "doubt"):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await a.send_load()
            await repaired(valkey, one, a, SUMMARY, before)
            await follows(late, a)
            late.pools.get(model).mirror.check_integrity()


async def test_audits_of_a_worker_that_changes_all_the_time_find_nothing(
    valkey: Valkey, model: str
) -> None:
    async with (
        gateway_half(valkey.url) as gateway,
        worker_half(gateway.address, values.hello("a", 1, model=model)) as a,
    ):
        await a.hold(HELD)
        await follows(gateway, a)
        pool = gateway.pools.get(model)
        before = dict(pool.mismatches)

        async def change() -> None:
            for step in itertools.count():
                await a.hold(frozenset(range(step, step + 2000)))
                await asyncio.sleep(0.001)

        changing = asyncio.create_task(change())
        for _ in range(5):
            await pool.auditor.audit(mirror_of(pool))
        changing.cancel()
        assert pool.auditor.audits == 5
        assert dict(pool.mismatches) == before
        assert a.resyncs == 0


async def test_all_workers_are_audited_in_time(
    valkey: Valkey, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    audited = set()

    async def run(gateway: GatewayHalf) -> None:
        pool = gateway.pools.get(model)
        auditor = audit.Auditor(model, pool.mirror, pool.auditor._reader, doubt)
        original = auditor.audit

        async def note(summary: Summary) -> None:
            audited.add(summary.registration.worker)
            await original(summary)

        auditor.audit = note  # type: ignore[method-assign]
        task = asyncio.create_task(auditor.run())
        await eventually(lambda: audited == {"a", "b"}, "audits of both workers")
        task.cancel()
        assert auditor.audits > 0

    async def doubt(summary: Summary, why: str) -> None:
        raise AssertionError(why)

    async with (
        gateway_half(valkey.url) as gateway,
        worker_half(gateway.address, values.hello("a", 1, model=model)) as a,
        worker_half(gateway.address, values.hello("b", 1, model=model)) as b,
    ):
        for worker in (a, b):
            await worker.hold(HELD)
            await follows(gateway, worker)
        monkeypatch.setattr(audit, "AUDIT_SECONDS", 0.001)
        await run(gateway)


async def test_without_redis_the_mirror_is_still_audited(own_valkey: Valkey, model: str) -> None:
    async with (
        gateway_half(own_valkey.url) as gateway,
        worker_half(gateway.address, values.hello("a", 1, model=model)) as a,
    ):
        pool, before = await corrupted(own_valkey, gateway, a, exchange_in_the_mirror)
        own_valkey.kill()
        await eventually(lambda: bool(pool.problem), "Redis to be away")
        await pool.auditor.audit(mirror_of(pool))
        assert pool.auditor.audits == 0
        await follows(gateway, a)
        assert gateway.listeners[model].held["a"] == a.held
        assert pool.mismatches[SUMMARY] > before[SUMMARY]
