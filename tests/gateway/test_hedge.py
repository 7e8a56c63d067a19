"""A worker that is late gets company, and whoever answers first is taken."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from grpc import StatusCode
from radixgate.v1.gateway_pb2 import RouteRequest
from radixgate.v1.generate_pb2 import GenerateRequest, GenerateResponse

from gateway.route.patience import ENOUGH
from gateway.serve.forward import StreamError
from gateway.serve.hedge import first_answer
from tests.gateway.doubles import ScriptedWorker, echo, make_card
from tests.gateway.harness import REQUEST, events, serving, until, working
from tests.summary.valkey import Valkey

FAILURE = StreamError(StatusCode.UNAVAILABLE, "gone")


class Asked:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

    async def read(self) -> bytes | None:
        return await self.answer


async def test_one_that_is_in_time_stays_alone() -> None:
    first = Asked()
    first.answer.set_result(b"1")

    def another() -> Asked | None:
        raise AssertionError

    assert await first_answer(first, another, 60) == (first, b"1")


async def test_one_that_fails_in_time_has_failed() -> None:
    first = Asked()
    first.answer.set_exception(FAILURE)
    with pytest.raises(StreamError):
        await first_answer(first, Asked, 60)


@pytest.mark.parametrize("winner", [0, 1])
async def test_the_first_answer_is_taken_and_the_other_is_let_go(winner: int) -> None:
    both = [Asked(), Asked()]

    def another() -> Asked | None:
        both[winner].answer.set_result(b"x")
        return both[1]

    assert await first_answer(both[0], another, 0) == (both[winner], b"x")
    assert both[1 - winner].answer.cancelled()


@pytest.mark.parametrize("failing", [0, 1])
async def test_who_fails_does_not_win(failing: int) -> None:
    both = [Asked(), Asked()]

    def another() -> Asked | None:
        both[failing].answer.set_exception(FAILURE)
        asyncio.get_running_loop().call_later(0.01, both[1 - failing].answer.set_result, b"x")
        return both[1]

    assert await first_answer(both[0], another, 0) == (both[1 - failing], b"x")


async def test_when_both_fail_it_fails() -> None:
    both = [Asked(), Asked()]

    def another() -> Asked | None:
        for each in both:
            each.answer.set_exception(FAILURE)
        return both[1]

    with pytest.raises(StreamError):
        await first_answer(both[0], another, 0)


async def test_with_nobody_else_it_waits_on() -> None:
    first = Asked()

    def another() -> Asked | None:
        first.answer.set_result(None)
        return None

    assert await first_answer(first, another, 0) == (first, None)


async def test_whoever_waits_may_give_up() -> None:
    both = [Asked(), Asked()]
    waiting = asyncio.create_task(first_answer(both[0], lambda: both[1], 0))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert all(each.answer.cancelled() for each in both)


@pytest.mark.slow
async def test_a_late_worker_is_cancelled_and_nothing_stays_reserved(valkey: Valkey) -> None:
    late = False

    async def play(
        request: GenerateRequest, worker: ScriptedWorker
    ) -> AsyncIterator[GenerateResponse]:
        if late and worker.name == "a":
            await asyncio.sleep(60)
        async for response in echo(request, worker):
            yield response

    a, b = ScriptedWorker("a", make_card(), play), ScriptedWorker("b", make_card(), play)
    b.load.free_blocks = 900  # so that it is the second choice
    async with serving(valkey, hedge=True) as client, working(client, a, b):
        for _ in range(ENOUGH):
            assert (await client.generate())[0].started.worker == "a"
        assert not b.requests
        late = True
        responses = await client.generate()
        assert events(responses) == ["started", "tokens", "tokens", "finished"]
        assert responses[0].started.worker == "b"
        assert responses[-1].finished.migrations == 0
        await asyncio.wait_for(a.cancelled.wait(), 10)
        assert a.requests[-1] == b.requests[-1]

        async def released() -> bool:
            explained = await client.gateway.Explain(RouteRequest(generate=REQUEST))
            return [each.expected_tokens for each in explained.candidates] == [0, 0]

        await until(released)


@pytest.mark.slow
async def test_without_the_option_a_late_worker_is_waited_for(valkey: Valkey) -> None:
    calls = 0

    async def play(
        request: GenerateRequest, worker: ScriptedWorker
    ) -> AsyncIterator[GenerateResponse]:
        nonlocal calls
        calls += 1
        if calls > ENOUGH:
            await asyncio.sleep(0.5)
        async for response in echo(request, worker):
            yield response

    fleet = [ScriptedWorker(name, make_card(), play) for name in "ab"]
    async with serving(valkey) as client, working(client, *fleet):
        for _ in range(ENOUGH + 1):
            await client.generate()
    assert calls == ENOUGH + 1
