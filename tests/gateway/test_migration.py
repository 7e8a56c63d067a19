"""Workers that die in mid-stream: the client has the stream that it would have had."""

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

import grpc.aio
import pytest
from grpc import StatusCode
from radixgate.prefix import pack_tokens
from radixgate.v1.gateway_pb2 import RouteRequest
from radixgate.v1.generate_pb2 import (
    FINISH_REASON_LENGTH,
    FINISH_REASON_STOP,
    Finished,
    GenerateRequest,
    GenerateResponse,
    Stopping,
    Tokens,
)

from tests.gateway.doubles import Abort, ScriptedWorker, make_card
from tests.gateway.harness import Client, serving, working
from tests.gateway.reciter import Reciter
from tests.summary.valkey import Valkey

pytestmark = pytest.mark.slow

ANSWER = "naïve 🙂, and no STOP more"
PROMPT = pack_tokens(range(5, 205))


class Stream(NamedTuple):
    """What a client gets."""

    started: list[str]
    ids: list[int]
    text: str
    finished: Finished


def gathered(responses: list[GenerateResponse]) -> Stream:
    return Stream(
        [each.started.worker for each in responses if each.HasField("started")],
        [token for each in responses for token in each.tokens.ids],
        "".join(each.tokens.text for each in responses),
        responses[-1].finished,
    )


def asked(reciter: Reciter, **stopping: object) -> GenerateRequest:
    limits = {"max_tokens": len(reciter.ids), **stopping}
    return GenerateRequest(packed=PROMPT, stopping=Stopping(**limits))


def workers(reciter: Reciter, names: str) -> list[ScriptedWorker]:
    return [ScriptedWorker(name, make_card(), reciter) for name in names]


async def received(client: Client, request: GenerateRequest) -> tuple[str, grpc.aio.AioRpcError]:
    """The text of a stream that fails, and how it fails."""
    text = ""
    try:
        async for response in client.gateway.Generate(request, timeout=20):
            text += response.tokens.text
    except grpc.aio.AioRpcError as error:
        return text, error
    raise AssertionError("the stream did not fail")


@pytest.mark.parametrize(
    ("stopping", "reason", "text", "stop"),
    [
        ({}, FINISH_REASON_LENGTH, ANSWER, ""),
        ({"stop": ["STOP"]}, FINISH_REASON_STOP, "naïve 🙂, and no ", "STOP"),
        ({"max_tokens": 9}, FINISH_REASON_LENGTH, "naïve \N{REPLACEMENT CHARACTER}", ""),
    ],
)
async def test_wherever_it_is_cut_the_stream_is_whole(
    valkey: Valkey, stopping: dict[str, object], reason: int, text: str, stop: str
) -> None:
    reciter = Reciter(ANSWER)
    request = asked(reciter, **stopping)
    a, b = workers(reciter, "ab")
    async with serving(valkey) as client, working(client, a, b):
        whole = gathered(await client.generate(request))
        assert (whole.text, whole.finished.reason, whole.finished.stop) == (text, reason, stop)
        assert whole.finished.migrations == 0
        # From the first token to the one that ends it, which is followed by Finished alone.
        for cut in range(1, len(whole.ids) + 1):
            reciter.deaths.append(cut)
            reciter.calls.clear()
            stream = gathered(await client.generate(request))
            assert (stream.ids, stream.text) == (whole.ids, whole.text)
            assert len(set(reciter.calls)) == 2
            # The gateway drew it, and keeps it.
            assert a.requests[-1].sampling.seed == b.requests[-1].sampling.seed != 0
            assert stream.started == reciter.calls[:1]
            finished = stream.finished
            assert (finished.reason, finished.stop) == (reason, stop)
            assert (finished.prompt_tokens, finished.output_tokens) == (200, len(whole.ids))
            assert finished.migrations == 1
            assert 0 <= finished.queue_seconds <= finished.ttft_seconds <= finished.total_seconds


async def test_memory_that_the_answer_fills_to_the_last_token_is_enough_to_end_it(
    valkey: Valkey,
) -> None:
    reciter = Reciter(ANSWER[:8])  # nine bytes
    card = make_card(num_blocks=13)  # of 16 tokens
    fleet = [ScriptedWorker(name, card, reciter) for name in "ab"]
    request = asked(reciter)
    request.packed = pack_tokens(range(5, 204))
    async with serving(valkey) as client, working(client, *fleet):
        reciter.deaths.append(9)
        stream = gathered(await client.generate(request))
        assert (stream.text, stream.finished.migrations) == (ANSWER[:8], 1)


async def test_started_and_finished_tell_the_same_of_the_prompt(valkey: Valkey) -> None:
    reciter = Reciter(ANSWER)
    async with serving(valkey) as client, working(client, *workers(reciter, "ab")):
        reciter.deaths.append(4)
        first, *_, last = await client.generate(asked(reciter))
        assert (first.started.cached_tokens, reciter.cached) == (1, 2)
        assert last.finished.cached_tokens == 1


async def test_several_may_die_one_after_the_other(valkey: Valkey) -> None:
    reciter = Reciter(ANSWER)
    async with serving(valkey) as client, working(client, *workers(reciter, "abcde")):
        # Two before the first token, then one with tokens, one without, and the last finishes.
        reciter.deaths.extend([0, 0, 5, 0])
        stream = gathered(await client.generate(asked(reciter)))
        assert stream.text == ANSWER
        assert sorted(reciter.calls) == ["a", "b", "c", "d", "e"]
        assert stream.started == [reciter.calls[2]]
        assert stream.finished.migrations == 1

        reciter.calls.clear()
        reciter.deaths.extend([3, 1, 2, 4])
        stream = gathered(await client.generate(asked(reciter)))
        assert stream.text == ANSWER
        assert len(set(reciter.calls)) == 5
        assert stream.finished.migrations == 4


async def test_when_nobody_is_left_the_client_is_told_who_failed(valkey: Valkey) -> None:
    reciter = Reciter(ANSWER)
    async with serving(valkey) as client, working(client, *workers(reciter, "ab")):
        reciter.deaths.extend([3, 4])
        text, error = await received(client, asked(reciter))
        assert text == ANSWER[:6]  # seven bytes
        assert error.code() is StatusCode.UNAVAILABLE
        for word in ("after 7 tokens", "worker 'a'", "worker 'b'", "killed"):
            assert word in str(error.details())
        assert len(reciter.calls) == 2


@pytest.mark.parametrize(
    ("deaths", "calls"),
    [
        ([3, 0, 0, 0, 0, 0, 0], 4),  # three in a row without a token
        ([1, 1, 1, 1, 1, 1, 1], 6),  # five migrations
    ],
)
async def test_a_request_that_kills_its_workers_does_not_kill_them_all(
    valkey: Valkey, deaths: list[int], calls: int
) -> None:
    reciter = Reciter(ANSWER)
    async with serving(valkey) as client, working(client, *workers(reciter, "abcdefgh")):
        reciter.deaths.extend(deaths)
        _, error = await received(client, asked(reciter))
        assert error.code() is StatusCode.UNAVAILABLE
        assert len(reciter.calls) == calls


@pytest.mark.parametrize(
    "failure",
    [
        Abort(StatusCode.INTERNAL, "the engine failed"),
        Abort(StatusCode.CANCELLED, "drained"),
        RuntimeError("a bug"),
        None,
    ],
)
async def test_any_end_but_finished_is_a_failure(valkey: Valkey, failure: Exception | None) -> None:
    reciter = Reciter(ANSWER)
    reciter.failure = failure
    async with serving(valkey) as client, working(client, *workers(reciter, "ab")):
        reciter.deaths.append(8)
        stream = gathered(await client.generate(asked(reciter)))
        assert (stream.text, stream.finished.migrations) == (ANSWER, 1)


async def test_who_cannot_go_on_is_passed_over(valkey: Valkey) -> None:
    reciter = Reciter(ANSWER)

    async def refusing(
        request: GenerateRequest, worker: ScriptedWorker
    ) -> AsyncIterator[GenerateResponse]:
        if request.resumed_tokens and "refused" not in reciter.calls:
            reciter.calls.append("refused")
            raise Abort(StatusCode.FAILED_PRECONDITION, "too small")
        async for response in reciter(request, worker):
            yield response

    fleet = [ScriptedWorker(name, make_card(), refusing) for name in "abc"]
    async with serving(valkey) as client, working(client, *fleet):
        reciter.deaths.append(8)
        stream = gathered(await client.generate(asked(reciter)))
        assert (stream.text, stream.finished.migrations) == (ANSWER, 1)
        assert "refused" in reciter.calls


async def test_the_deadline_goes_along(valkey: Valkey) -> None:
    calls = []

    async def play(
        request: GenerateRequest, worker: ScriptedWorker
    ) -> AsyncIterator[GenerateResponse]:
        calls.append(worker)
        yield GenerateResponse(tokens=Tokens(ids=[1]))
        if len(calls) == 1:
            raise Abort(StatusCode.UNAVAILABLE, "killed")
        await asyncio.sleep(60)

    fleet = [ScriptedWorker(name, make_card(), play) for name in "ab"]
    async with serving(valkey) as client, working(client, *fleet):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in client.gateway.Generate(GenerateRequest(packed=PROMPT), timeout=1):
                pass
        assert caught.value.code() is StatusCode.DEADLINE_EXCEEDED
        await asyncio.wait_for(calls[1].cancelled.wait(), 10)


async def test_clients_cannot_resume(valkey: Valkey) -> None:
    reciter = Reciter(ANSWER)
    async with serving(valkey) as client, working(client, *workers(reciter, "a")):
        request = asked(reciter)
        request.resumed_tokens = 3
        error = await client.failure(request)
        assert error.code() is StatusCode.INVALID_ARGUMENT
        assert "resumed_tokens: 3" in str(error.details())
        assert not reciter.calls


async def test_a_worker_that_fails_again_and_again_is_left_alone_and_told_of(
    valkey: Valkey,
) -> None:
    reciter = Reciter(ANSWER)

    async def dying(
        request: GenerateRequest, worker: ScriptedWorker
    ) -> AsyncIterator[GenerateResponse]:
        bad.failures += 1  # type: ignore[attr-defined]
        raise Abort(StatusCode.UNAVAILABLE, "no luck")
        yield

    (good,) = workers(reciter, "g")
    bad = ScriptedWorker("bad", make_card(), dying)
    bad.failures = 0  # type: ignore[attr-defined]
    good.load.backlog_tokens = 5000  # so that it is the second choice
    async with serving(valkey) as client, working(client, bad, good):
        while bad.failures < 3:  # type: ignore[attr-defined]
            assert gathered(await client.generate(asked(reciter))).text == ANSWER
        explained = await client.gateway.Explain(RouteRequest(generate=asked(reciter)))
        assert [candidate.worker for candidate in explained.candidates] == ["g", "bad"]
        best, barred = explained.candidates
        assert (best.chosen, best.circuit, barred.chosen) == (True, "", False)
        assert "failed 3 times in a row" in barred.circuit
        assert "UNAVAILABLE: no luck" in barred.circuit
        assert explained.reason.endswith("requests failed there: bad.")
        circuits = {info.worker: info.circuit for info in await client.workers()}
        assert circuits["g"] == ""
        assert "no luck" in circuits["bad"]
