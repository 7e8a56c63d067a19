"""Several gateways of one pool: what one of them decides counts for the others."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from radixgate.v1.gateway_pb2 import Candidate, RouteRequest
from radixgate.v1.generate_pb2 import GenerateRequest, GenerateResponse

from tests.gateway.doubles import ScriptedWorker, echo, make_card
from tests.gateway.harness import REQUEST, Client, live, serving, until, working
from tests.summary.valkey import Valkey

pytestmark = pytest.mark.slow


def holding(go_on: asyncio.Event):  # type: ignore[no-untyped-def]
    """Answers nothing until told."""

    async def play(
        request: GenerateRequest, worker: ScriptedWorker
    ) -> AsyncIterator[GenerateResponse]:
        await go_on.wait()
        async for response in echo(request, worker):
            yield response

    return play


async def candidates(client: Client, request: GenerateRequest = REQUEST) -> dict[str, Candidate]:
    explained = await client.gateway.Explain(RouteRequest(generate=request))
    return {candidate.worker: candidate for candidate in explained.candidates}


async def expected(client: Client, worker: str) -> int:
    return (await candidates(client))[worker].expected_tokens


async def test_what_one_gateway_reserved_is_expected_by_the_other_until_it_ends(
    valkey: Valkey,
) -> None:
    go_on = asyncio.Event()
    a = ScriptedWorker("a", make_card(), holding(go_on))
    async with serving(valkey) as one, serving(valkey) as two, working(one, a):
        await until(lambda: live(two, a))
        assert await expected(two, "a") == 0
        running = asyncio.create_task(one.generate())
        await until(lambda: _is(expected(two, "a"), 640))
        candidate = (await candidates(two))["a"]
        assert candidate.matched_tokens == 0
        go_on.set()
        await running
        await until(lambda: _is(expected(two, "a"), 0))


async def _is(value, wanted) -> bool:  # type: ignore[no-untyped-def]
    return (await value) == wanted
