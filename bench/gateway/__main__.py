"""What the gateway adds to a request, and how soon it knows of an eviction.

    make bench-gateway

Client, gateway, Redis and worker are processes of their own. The worker is a double that speaks a
worker's protocol and answers at once (`bench/gateway/double.py`), so that what is measured is the
way to it and back: directly; through the floor, which passes bytes on with the same grpc.aio and
looks at nothing (`bench/gateway/floor.py`); and through the gateway, which is `radixgate gateway`
with its defaults. They take turns in each round, and what is printed of a case are medians over
rounds, and ratios of numbers of one round. CPU time is that of the process in the middle, for one
request, message or call; without one, of the worker.

TTFT is from the call to the first message with tokens, which comes after Started. Calls that do
not stream are compared with the floor's empty one; after Route comes Finish, which counts for the
rate and for CPU time, but not for the times until the answer.

Then a worker evicts something about every 30 ms, and two gateways print when their mirrors have it.

Prints JSON with the raw numbers, of each round or eviction.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bench.gateway import workload
from bench.gateway.evictions import evictions
from bench.gateway.load import GENERATE, Ask, answer, closed_loop, first_token, look_aside
from bench.gateway.numbers import DIRECT, FLOOR, Round, compared, percentile
from bench.gateway.parts import Part, fleet, part
from gateway.serve.forward import GENERATE as WORKER_GENERATE

SHORT, LONG = 1, 1_000
"""Messages with tokens in an answer."""

Requests = Callable[[random.Random], bytes]


class Case(NamedTuple):
    """Args: makes `requests`, so many `calls` in a round of each candidate, by `clients` at a time;
    messages with tokens in an answer, if it streams.
    """

    requests: Requests
    calls: int
    clients: int
    messages: int = 0


class Candidate(NamedTuple):
    """Args: who is asked, and how; whose CPU time counts."""

    ask: Ask
    part: Part


STREAMS = {
    f"{kind}, {clients} at a time": Case(requests, calls, clients, SHORT)
    for kind, requests in (
        ("1000 token ids", lambda rng: workload.tokens(rng, SHORT).SerializeToString()),
        ("1000 tokens of text", lambda rng: workload.text(rng, SHORT).SerializeToString()),
    )
    for clients, calls in ((1, 200), (16, 480))
} | {
    "8 streams of 1000 messages": Case(
        lambda rng: workload.tokens(rng, LONG).SerializeToString(), 8, 8, LONG
    )
}
UNARY = {
    f"{clients} at a time": Case(
        lambda rng: workload.route(rng).SerializeToString(), 15 * clients + 200, clients
    )
    for clients in (1, 16)
}


async def measure(case: Case, candidates: dict[str, Candidate], rounds: int) -> list[Round]:
    """Rounds of a case, after one that is not counted."""
    measured = []
    for number in range(rounds + 1):
        rng = random.Random(number)
        requests = [case.requests(rng) for _ in range(case.calls)]
        measured.append(
            {name: await once(case, requests, each) for name, each in candidates.items()}
        )
    return measured[1:]


async def once(case: Case, requests: Sequence[bytes], candidate: Candidate) -> dict[str, float]:
    """One candidate's part of a round."""
    cpu, began = candidate.part.cpu_seconds, time.perf_counter()
    taken = await closed_loop(candidate.ask, requests, case.clients)
    seconds, cpu = time.perf_counter() - began, candidate.part.cpu_seconds - cpu
    each = len(requests) * max(1, case.messages)
    return {
        "p50_ms": round(1000 * percentile(taken, 50), 3),
        "p99_ms": round(1000 * percentile(taken, 99), 3),
        "per_second": round(each / seconds),
        "cpu_us": round(1e6 * cpu / each, 1),
    }


async def overhead(rounds: int) -> dict[str, Any]:
    """All cases."""
    async with fleet(1) as running, part("floor", running.worker.address) as floor:
        (gateway,), worker = running
        streams = {
            DIRECT: Candidate(first_token(worker.channel, WORKER_GENERATE), worker),
            FLOOR: Candidate(first_token(floor.channel, GENERATE), floor),
            "gateway": Candidate(first_token(gateway.channel, GENERATE), gateway),
        }
        unary = {
            FLOOR: Candidate(answer(floor.channel, "Explain"), floor),
            "Route, then Finish": Candidate(look_aside(gateway.channel), gateway),
            "Explain": Candidate(answer(gateway.channel, "Explain"), gateway),
        }
        return {
            "streams": {
                name: compared(await measure(case, streams, rounds))
                for name, case in STREAMS.items()
            },
            "unary": {
                name: compared(await measure(case, unary, rounds)) for name, case in UNARY.items()
            },
        }


async def run(rounds: int, count: int) -> dict[str, Any]:
    request = workload.tokens(random.Random(1), 16).SerializeToString()
    return await overhead(rounds) | {
        "evictions": {
            f"{clients} requests at a time": await evictions(count, request, clients)
            for clients in (0, 4)
        }
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--evictions", type=int, default=500)
    options = parser.parse_args()
    json.dump(asyncio.run(run(options.rounds, options.evictions)), sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
