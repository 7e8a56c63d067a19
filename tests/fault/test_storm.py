"""Gateway, worker and Redis die, or hang, in every order, so that all three are away at once.

A second gateway and a second worker are left, so every request is to be answered, with exactly the
tokens that it would have had. When all are back, what is believed is to be true again.
"""

import asyncio
import signal
from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import pytest

from tests.e2e.processes import Fleet, Process, free_port
from tests.e2e.truth import all_agree
from tests.fault.fleet import LEASE, Pair, vocabulary
from tests.fault.load import Answer, Question, SteadyLoad, mixed_questions, undisturbed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ORDERS = list(permutations(("gateway", "worker", "redis")))
# `make test` has the first, `make test-fault` all.
CASES = [
    pytest.param(ORDERS[0]),
    *(pytest.param(order, marks=pytest.mark.long) for order in ORDERS[1:]),
]
REQUESTS = 200
REPAIR_SECONDS = 10.0


class Victims(NamedTuple):
    """The parts of the fleet, and how it answers when it is left alone."""

    redis_port: int
    redis: Process
    pair: Pair
    questions: Sequence[Question]
    answers: Sequence[Answer]

    def of(self, order: Sequence[str], number: int) -> list[Process]:
        """Whom to strike: the first gateway and worker, or the second; either hears reports."""
        gateway, worker = self.pair.gateways[number % 2], self.pair.workers[number % 2]
        named = {"gateway": gateway, "worker": worker, "redis": self.redis}
        return [named[name] for name in order]


@pytest.fixture(scope="module")
def victims(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Iterator[Victims]:
    """One fleet for all storms; each leaves it whole."""
    fleet, redis_port = Fleet(tmp_path_factory.mktemp("storm")), free_port()
    try:
        redis = fleet.redis(redis_port).start()
        url = f"redis://127.0.0.1:{redis_port}"
        pair = Pair(fleet, tiny_llama, "--redis", url, *LEASE).start()
        questions = mixed_questions(vocabulary(tiny_llama), REQUESTS)
        answers = asyncio.run(undisturbed(pair.addresses[0], questions))
        yield Victims(redis_port, redis, pair, questions, answers)
    finally:
        fleet.stop()


def strike(victim: Process, fault: signal.Signals) -> None:
    if fault is signal.SIGKILL:
        victim.kill()
    else:
        victim.signal(fault)


def revive(victim: Process, fault: signal.Signals) -> None:
    if fault is signal.SIGKILL:
        victim.start()
    else:
        victim.signal(signal.SIGCONT)


@pytest.mark.parametrize("order", CASES, ids="-".join)
@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP], ids=lambda fault: fault.name)
async def test_every_answer_is_whole_and_the_truth_returns(
    victims: Victims, tiny_llama: Path, fault: signal.Signals, order: tuple[str, ...]
) -> None:
    struck = victims.of(order, ORDERS.index(order))
    addresses = victims.pair.addresses
    load = SteadyLoad(addresses, victims.questions, victims.answers)
    await load.count(REQUESTS // 10)
    for victim in struck:
        await load.in_mid_stream()
        strike(victim, fault)
        await asyncio.sleep(1)
    for victim in struck:
        await asyncio.to_thread(revive, victim, fault)
    restored = monotonic()
    await load.count(REQUESTS)
    await load.end_well()
    # What it takes to ask the rest is part of the time, unless the machine is too slow for that.
    left = max(REPAIR_SECONDS - (monotonic() - restored), 1.0)
    await asyncio.to_thread(all_agree, addresses, victims.redis_port, tiny_llama.name, seconds=left)
