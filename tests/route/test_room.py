"""How much a pool can take, from what its workers report and what is on its way."""

from typing import Any

import pytest
from radixgate.v1.sync_pb2 import Load

from gateway.fleet.pressure import Pressure
from gateway.route.reservations import Unreported
from gateway.route.room import BACKLOG_MS, Occupied, Room, pool_room, worker_room

NOTHING = Unreported(0, 0)


def occupied(unreported: Unreported = NOTHING, **changes: Any) -> Occupied:
    fields = {
        "max_running": 32,
        "free_blocks": 1000,
        "total_blocks": 1000,
        "prefill_tokens_per_second": 100.0,
    }
    return Occupied(Pressure.of(Load(**{**fields, **changes})), unreported)


def requests(unreported: int = 0, **changes: Any) -> int:
    return worker_room(occupied(Unreported(unreported, 0), **changes), 1.0).requests


def test_a_worker_takes_what_its_slots_and_a_short_queue_hold() -> None:
    assert requests() == 32 + 4
    assert requests(running=20, waiting=2) == 14
    assert requests(running=32, waiting=4) == 0
    assert requests(max_running=1) == 2


def test_what_was_sent_and_what_ended_since_the_report_counts() -> None:
    assert requests(10, running=20) == 6
    assert requests(-3, running=32, waiting=4) == 3


def test_a_worker_out_of_memory_keeps_a_short_queue_and_no_more() -> None:
    scarce = {"free_blocks": 10, "cached_blocks": 100, "running": 5}
    assert requests(**scarce, waiting=1) == 3
    assert requests(**scarce, waiting=9) < 0
    assert requests(-6, **scarce, waiting=9) == 1
    # Nobody waits, so what there is has been enough so far.
    assert requests(**scarce) == 31
    # Much can be evicted, so these wait for the next step alone.
    assert requests(running=5, waiting=4, free_blocks=0, cached_blocks=900) == 27
    # Its memory is not reported.
    assert requests(running=5, waiting=4, free_blocks=0, total_blocks=0) == 27


def test_the_backlog_is_no_longer_than_its_time() -> None:
    work = worker_room(occupied(Unreported(1, 30), backlog_tokens=50), 1.0).work
    assert work == pytest.approx(BACKLOG_MS * 0.1 - 50 - 30)
    computed = occupied(Unreported(known=40, computed=30), backlog_tokens=50)
    assert worker_room(computed, 1.0).work == pytest.approx(BACKLOG_MS * 0.1 - 50 + 30)
    unmeasured = occupied(prefill_tokens_per_second=0)
    assert worker_room(unmeasured, 7.0).work == BACKLOG_MS * 7


def test_a_worker_that_has_not_reported_gets_one_request() -> None:
    unknown = Pressure.of(Load())
    assert worker_room(Occupied(unknown, NOTHING), 1.0).requests == 1
    assert worker_room(Occupied(unknown, Unreported(1, 10)), 1.0).requests == 0


def test_a_pool_is_the_sum_of_those_that_have_room() -> None:
    full = occupied(running=32, waiting=40)
    behind = occupied(backlog_tokens=10_000)
    free = occupied(running=30)
    assert pool_room([]) is None
    assert pool_room([full]) == Room(0, 0)
    assert pool_room([full, free]) == Room(6, 200)
    assert pool_room([full, free, free]) == Room(12, 400)
    busy = pool_room([behind, full])
    assert busy
    assert not busy.takes()


def test_the_urgent_pass_a_backlog_but_not_full_slots() -> None:
    assert Room(1, 0).takes(priority=1)
    assert not Room(1, 0).takes()
    assert not Room(0, 100).takes(priority=1)
    assert Room(2, 15).after(10) == Room(1, 5)
