"""Sentinel makes another Redis the master: the gateways go there, and nobody else notices."""

import asyncio
import signal
from pathlib import Path

import pytest
import redis

from tests.e2e.processes import Fleet, free_port, wait_until
from tests.e2e.truth import all_agree
from tests.fault.fleet import LEASE, Pair, vocabulary
from tests.fault.load import SteadyLoad, mixed_questions, undisturbed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

MASTER = "mymaster"


def replica_is_in_sync(port: int) -> bool:
    with redis.Redis(port=port) as replica:
        return replica.info("replication").get("master_link_status") == "up"


def master_port(sentinel_port: int) -> int:
    with redis.Redis(port=sentinel_port) as sentinel:
        return int(sentinel.sentinel_get_master_addr_by_name(MASTER)[1])


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP], ids=lambda fault: fault.name)
async def test_gateways_follow_the_master(
    fleet: Fleet, tiny_llama: Path, fault: signal.Signals
) -> None:
    old, new, asked, unused = (free_port() for _ in range(4))
    master = fleet.redis(old).start()
    fleet.redis(new, "--replicaof", f"127.0.0.1 {old}").start()
    wait_until(lambda: replica_is_in_sync(new), 10, "the replica has all of the master")
    fleet.sentinel(asked, old, MASTER).start()
    # The first of the Sentinels is dead.
    url = f"redis+sentinel://127.0.0.1:{unused},127.0.0.1:{asked}/{MASTER}"
    pair = Pair(fleet, tiny_llama, "--redis", url, *LEASE).start()
    questions = mixed_questions(vocabulary(tiny_llama), 60)
    answers = await undisturbed(pair.addresses[0], questions)
    await asyncio.to_thread(all_agree, pair.addresses, old, tiny_llama.name)

    load = SteadyLoad(pair.addresses, questions, answers)
    await load.count(20)
    master.signal(fault)
    await asyncio.to_thread(
        wait_until, lambda: master_port(asked) == new, 30, "Sentinel has made the replica master"
    )
    await load.more(40)
    await load.end_well()
    await asyncio.to_thread(all_agree, pair.addresses, new, tiny_llama.name)
    if fault is signal.SIGSTOP:
        # It takes itself for the master until Sentinel tells it otherwise.
        master.signal(signal.SIGCONT)
    else:
        master.start()
    await asyncio.to_thread(
        wait_until, lambda: replica_is_in_sync(old), 30, "the old master is a replica"
    )
    load = SteadyLoad(pair.addresses, questions, answers)
    await load.count(40)
    await load.end_well()
    await asyncio.to_thread(all_agree, pair.addresses, new, tiny_llama.name)
