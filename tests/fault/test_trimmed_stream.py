"""The stream of events is trimmed past a gateway: it reads the summaries again."""

import asyncio
import signal
from pathlib import Path

import pytest
import redis

from gateway.summary.store import pool_key
from tests.e2e.processes import Fleet, free_port
from tests.e2e.truth import all_agree
from tests.fault.fleet import Pair, vocabulary
from tests.fault.load import SteadyLoad, mixed_questions, undisturbed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

MISSING = "events are missing, reading all of it"
TRIES = 20


async def test_a_gateway_that_was_left_behind_has_the_truth_again(
    fleet: Fleet, tiny_llama: Path
) -> None:
    redis_port, stream = free_port(), f"{pool_key(tiny_llama.name)}:events"
    fleet.redis(redis_port).start()
    pair = Pair(fleet, tiny_llama, "--redis", f"redis://127.0.0.1:{redis_port}").start()
    questions = mixed_questions(vocabulary(tiny_llama), 100)
    answers = await undisturbed(pair.addresses[0], questions)
    await asyncio.to_thread(all_agree, pair.addresses, redis_port, tiny_llama.name)

    ahead, behind = pair.addresses[0], pair.gateways[1]
    load = SteadyLoad([ahead], questions, answers)
    gaps = behind.output().count(MISSING)
    with redis.Redis(port=redis_port) as client:
        for _ in range(TRIES):
            # NOTE: a stop longer than a read may take breaks the connection, which shows nothing.
            behind.signal(signal.SIGSTOP)
            await load.more(8)
            client.xtrim(stream, maxlen=0, approximate=False)
            behind.signal(signal.SIGCONT)
            await load.more(8)
            if behind.output().count(MISSING) > gaps:
                break
        else:
            pytest.fail("no gap was ever noticed")
    await load.end_well()
    await asyncio.to_thread(all_agree, pair.addresses, redis_port, tiny_llama.name)
