"""Requests whose clients call the worker themselves, through whole gateways with a real Valkey."""

import asyncio

import grpc.aio
import pytest
from grpc import StatusCode
from radixgate import errors
from radixgate.client import AsyncClient
from radixgate.v1.gateway_pb2 import (
    FINISH_OUTCOME_COUNTED,
    FINISH_OUTCOME_ENDED_BEFORE,
    FINISH_OUTCOME_PASSED_ON,
    FinishRequest,
    RouteRequest,
    RouteResponse,
)
from radixgate.v1.generate_pb2 import Started
from radixgate.v1.worker_pb2_grpc import WorkerStub

from gateway.route.breaker import THRESHOLD
from gateway.serve import lookaside
from tests.gateway.doubles import ScriptedWorker, make_card
from tests.gateway.harness import PROMPT, REQUEST, Client, live, serving, until, working
from tests.summary.valkey import Valkey

pytestmark = pytest.mark.slow

ROUTE = RouteRequest(generate=REQUEST)


async def call(routed: RouteResponse) -> Started:
    """What a look-aside client does: the whole stream, and what its Started said."""
    async with grpc.aio.insecure_channel(routed.address) as channel:
        stream = WorkerStub(channel).Generate(routed.request)
        responses = [response async for response in stream]
    return responses[0].started


async def expected(client: Client) -> int:
    """Prompt tokens that the only worker is expected to hold, by reports and reservations."""
    (candidate,) = (await client.gateway.Explain(ROUTE)).candidates
    return candidate.expected_tokens


async def circuit(client: Client) -> str:
    (worker,) = await client.workers()
    return worker.circuit


async def test_a_client_serves_itself_and_tells_the_end(valkey: Valkey) -> None:
    worker = ScriptedWorker("a", make_card())
    async with (
        serving(valkey) as gateway,
        working(gateway, worker),
        AsyncClient(gateway.address) as client,
    ):
        routed = await client.route(PROMPT)
        assert (routed.worker, routed.address) == ("a", worker.address)
        assert routed.request.packed == PROMPT
        assert routed.reason.startswith("a is expected to hold 0 of 640 prompt tokens")
        assert await expected(gateway) == 640
        started = await call(routed)
        assert worker.requests == [routed.request]
        for outcome in (FINISH_OUTCOME_COUNTED, FINISH_OUTCOME_ENDED_BEFORE):
            told = await client.finish(
                routed.reservation, cached_tokens=started.cached_tokens, timeout=5
            )
            assert told.outcome == outcome
            assert await expected(gateway) == 0


async def test_an_end_that_another_gateway_hears_reaches_the_one_that_routed(
    valkey: Valkey,
) -> None:
    worker = ScriptedWorker("a", make_card())
    async with (
        serving(valkey) as one,
        serving(valkey) as two,
        working(one, worker),
        AsyncClient(two.address) as other,
    ):
        await until(lambda: live(two, worker))
        routed = await one.gateway.Route(ROUTE)
        for _ in range(2):
            told = await other.finish(routed.reservation, cached_tokens=0)
            assert told.outcome == FINISH_OUTCOME_PASSED_ON

        async def released() -> bool:
            return await expected(one) == 0

        await until(released)
        again = await one.gateway.Finish(FinishRequest(reservation=routed.reservation))
        assert again.outcome == FINISH_OUTCOME_ENDED_BEFORE


async def test_without_redis_the_end_is_told_to_the_gateway_that_routed_or_not_at_all(
    valkey: Valkey,
) -> None:
    worker = ScriptedWorker("a", make_card())
    async with (
        serving(valkey) as one,
        serving(valkey) as two,
        working(one, worker),
        AsyncClient(two.address) as other,
    ):
        await until(lambda: live(two, worker))
        routed = await one.gateway.Route(ROUTE)
        valkey.kill()

        async def refused() -> bool:
            try:
                await other.finish(routed.reservation)
            except errors.Unavailable as error:
                return "Redis cannot be used" in str(error) and "try again" in str(error)
            return False

        await until(refused)
        told = await one.gateway.Finish(FinishRequest(reservation=routed.reservation))
        assert told.outcome == FINISH_OUTCOME_COUNTED


async def test_what_clients_tell_opens_and_closes_the_circuit(
    valkey: Valkey,
) -> None:
    async with (
        serving(valkey) as gateway,
        working(gateway, ScriptedWorker("a", make_card())),
        AsyncClient(gateway.address) as client,
    ):

        async def fail(status: StatusCode, cached_tokens: int | None = None) -> None:
            routed = await client.route(PROMPT)
            await client.finish(
                routed.reservation,
                status=status,
                cached_tokens=cached_tokens,
                message="a stack trace " * 1000,
            )

        for status in (StatusCode.CANCELLED, StatusCode.DEADLINE_EXCEEDED):
            for _ in range(THRESHOLD):
                await fail(status)
        for _ in range(THRESHOLD - 1):
            await fail(StatusCode.UNAVAILABLE)
        assert await circuit(gateway) == ""
        await fail(StatusCode.INTERNAL, cached_tokens=0)
        why = await circuit(gateway)
        assert "INTERNAL: a stack trace" in why
        assert "so says a client" in why
        assert len(why) < 2 * lookaside.MESSAGE_LENGTH
        await fail(StatusCode.CANCELLED, cached_tokens=0)
        assert await circuit(gateway) == "", "first tokens close it"
        await fail(StatusCode.UNKNOWN)
        assert await circuit(gateway) != "", "and leave it one failure from opening"
        routed = await client.route(PROMPT)
        await client.finish(routed.reservation)
        await fail(StatusCode.UNKNOWN)
        assert await circuit(gateway) == "", "a good end closes it for good"


async def test_who_failed_a_request_is_not_chosen_for_it_again(valkey: Valkey) -> None:
    workers = [ScriptedWorker(name, make_card()) for name in ("a", "b")]
    async with (
        serving(valkey) as gateway,
        working(gateway, *workers),
        AsyncClient(gateway.address) as client,
    ):
        first = await client.route(PROMPT)
        second = await client.route(PROMPT, without=[first.worker, "unknown"])
        assert {first.worker, second.worker} == {"a", "b"}
        with pytest.raises(errors.Unavailable, match=r"(a|b): failed; (a|b): failed"):
            await client.route(PROMPT, without=["a", "b"])


async def test_what_no_gateway_made_is_refused(valkey: Valkey) -> None:
    async with (
        serving(valkey) as gateway,
        working(gateway, ScriptedWorker("a", make_card())),
        AsyncClient(gateway.address) as client,
    ):
        routed = await client.route(PROMPT)
        name, number, model = routed.reservation.split("-")
        for wrong in ("", "x", f"{name}-{model}-{number}", f"{name}-{number}-"):
            with pytest.raises(errors.InvalidRequest, match="reservation: "):
                await client.finish(wrong)
        with pytest.raises(errors.NotFound, match="never made"):
            await client.finish(f"{name}-2-{model}")
        with pytest.raises(errors.NotFound, match="model 'other', of which"):
            await client.finish("0123456789abcdef-1-other")
        with pytest.raises(errors.InvalidRequest, match="cached_tokens: 641, of a prompt of 640"):
            await client.finish(routed.reservation, cached_tokens=641)
        bad_status = FinishRequest(reservation=routed.reservation, status=17)
        with pytest.raises(grpc.aio.AioRpcError, match="17 is no gRPC status"):
            await gateway.gateway.Finish(bad_status)
        # None of that has ended it.
        assert (await client.finish(routed.reservation)).outcome == FINISH_OUTCOME_COUNTED


async def test_who_is_routed_waits_for_a_place_and_the_end_of_another_gives_it(
    valkey: Valkey,
) -> None:
    worker = ScriptedWorker("a", make_card())
    worker.load.max_running = 1
    async with (
        serving(valkey) as gateway,
        working(gateway, worker),
        AsyncClient(gateway.address) as client,
    ):
        first = await client.route(PROMPT)
        worker.load.running = 2  # the first among them

        async def full() -> bool:
            try:
                routed = await client.route(PROMPT, timeout=0.5)
            except errors.Overloaded as error:
                return "its turn did not come before its deadline" in str(error)
            except errors.DeadlineExceeded:
                return False
            await client.finish(routed.reservation, status=StatusCode.CANCELLED)
            return False

        await until(full)
        second = asyncio.create_task(client.route(PROMPT, timeout=20))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(second), 0.3)
        await client.finish(first.reservation)
        assert (await second).worker == "a"
        # What the first took is known now, and no reason to think that a turn comes too late.
        await until(full)
