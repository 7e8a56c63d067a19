"""A whole gateway with a real Valkey; the workers are doubles that follow scripts."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.request import urlopen

import grpc.aio
import pytest
from grpc import StatusCode
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from radixgate.prefix import pack_tokens
from radixgate.v1.gateway_pb2 import (
    ChatMessage,
    ChatRequest,
    ListModelsRequest,
    ListWorkersRequest,
    RouteRequest,
)
from radixgate.v1.gateway_pb2_grpc import GatewayStub
from radixgate.v1.generate_pb2 import GenerateRequest, GenerateResponse, Started, Tokens
from radixgate.v1.worker_pb2_grpc import WorkerStub

from gateway.config import ConfigError, GatewayConfig
from gateway.main import gateway
from tests.gateway.doubles import Abort, Script, ScriptedWorker, echo, make_card
from tests.gateway.harness import PROMPT, REQUEST, Client, events, live, serving, until, working
from tests.summary.valkey import Valkey

pytestmark = pytest.mark.slow


def failing(code: StatusCode, details: str = "scripted", after: int = 0) -> Script:
    """As `echo`, but with a status after so many messages."""

    async def play(
        request: GenerateRequest, worker: ScriptedWorker
    ) -> AsyncIterator[GenerateResponse]:
        left = after
        async for response in echo(request, worker):
            if not left:
                raise Abort(code, details)
            left -= 1
            yield response

    return play


async def endless(
    request: GenerateRequest, worker: ScriptedWorker
) -> AsyncIterator[GenerateResponse]:
    """Tokens until cancelled."""
    yield GenerateResponse(started=Started(worker=worker.name))
    while True:
        yield GenerateResponse(tokens=Tokens(ids=[1], text="x"))
        await asyncio.sleep(0.001)


async def test_a_prompt_goes_to_the_worker_that_holds_it(valkey: Valkey) -> None:
    a, b = ScriptedWorker("a", make_card()), ScriptedWorker("b", make_card())
    async with serving(valkey) as client, working(client, a, b):
        b.store(PROMPT)

        async def reported() -> bool:
            held = {info.worker: info.summary.count for info in await client.workers()}
            return held == {"a": 0, "b": 10}

        await until(reported)
        for _ in range(3):
            responses = await client.generate()
            assert events(responses) == ["started", "tokens", "tokens", "finished"]
            started = responses[0].started
            assert (started.worker, started.prompt_tokens) == ("b", 640)
            assert started.cached_tokens == started.predicted_tokens == 640
        explained = await client.gateway.Explain(RouteRequest(generate=REQUEST))
        best, other = explained.candidates
        assert (best.worker, best.matched_tokens, best.chosen) == ("b", 640, True)
        assert (other.worker, other.matched_tokens, other.chosen) == ("a", 0, False)
        terms = best.wait_ms + best.prefill_ms + best.interfere_ms + best.evict_ms
        assert best.total_ms == pytest.approx(terms)
        assert explained.reason.startswith("b is expected to hold 640 of 640 prompt tokens")


async def test_chat_is_tokenized_here_and_text_comes_back(valkey: Valkey) -> None:
    worker = ScriptedWorker("a", make_card())
    async with serving(valkey) as client, working(client, worker):
        chat = ChatRequest(messages=[ChatMessage(role="user", content="1")])
        responses = [response async for response in client.gateway.Chat(chat)]
        assert "".join(response.tokens.text for response in responses) == "2 3 "
        assert worker.requests[0].packed == pack_tokens([0, 2, 6, 1, 0, 3])


@pytest.mark.parametrize("code", [StatusCode.UNAVAILABLE, StatusCode.RESOURCE_EXHAUSTED])
@pytest.mark.parametrize("after", [0, 1])
async def test_a_worker_that_fails_before_its_tokens_is_not_noticed(
    valkey: Valkey, code: StatusCode, after: int
) -> None:
    bad = ScriptedWorker("bad", make_card(), failing(code, after=after))
    good = ScriptedWorker("good", make_card())
    async with serving(valkey) as client, working(client, bad, good):
        good.load.backlog_tokens = 5000  # so that it is the second choice

        async def second_choice() -> bool:
            explained = await client.gateway.Explain(RouteRequest(generate=REQUEST))
            return explained.candidates[1].wait_ms > 0

        await until(second_choice)
        responses = await client.generate()
        assert events(responses) == ["started", "tokens", "tokens", "finished"]
        assert responses[0].started.worker == "good"
        assert len(bad.requests) == 1
        assert bad.requests[0] == good.requests[0]  # the seed too


async def test_when_all_fail_each_says_why(valkey: Valkey) -> None:
    workers = [
        ScriptedWorker(name, make_card(), failing(StatusCode.RESOURCE_EXHAUSTED, "full"))
        for name in ("a", "b")
    ]
    async with serving(valkey) as client, working(client, *workers):
        error = await client.failure()
        assert error.code() is StatusCode.RESOURCE_EXHAUSTED
        assert str(error.details()).count("full") == 2
        assert [len(worker.requests) for worker in workers] == [1, 1]


async def test_what_a_worker_refuses_is_refused_in_its_words(valkey: Valkey) -> None:
    script = failing(StatusCode.FAILED_PRECONDITION, "the prompt needs 99 blocks of 50")
    workers = [ScriptedWorker(name, make_card(), script) for name in ("a", "b")]
    async with serving(valkey) as client, working(client, *workers):
        error = await client.failure()
        assert error.code() is StatusCode.FAILED_PRECONDITION
        assert error.details() == "the prompt needs 99 blocks of 50"
        assert sum(len(worker.requests) for worker in workers) == 1


async def test_a_prompt_goes_only_where_its_kv_fits(valkey: Valkey) -> None:
    small = ScriptedWorker("small", make_card(num_blocks=len(PROMPT) // 4 // 16))
    large = ScriptedWorker("large", make_card())
    async with serving(valkey) as client, working(client, small):
        error = await client.failure()
        assert error.code() is StatusCode.FAILED_PRECONDITION
        for word in ("640 tokens", "small", "--kv-memory"):
            assert word in str(error.details())
        async with working(client, large):
            large.load.backlog_tokens = 50_000  # so that only its memory speaks for it
            for _ in range(3):
                assert (await client.generate())[0].started.worker == "large"
            short = GenerateRequest(packed=PROMPT[: 4 * 639])

            async def preferred() -> bool:
                return (await client.generate(short))[0].started.worker == "small"

            await until(preferred)

            large.load.draining = True

            async def unavailable() -> bool:
                explain = client.gateway.Explain(RouteRequest(generate=REQUEST))
                try:
                    await explain
                except grpc.aio.AioRpcError as error:
                    details = str(error.details())
                    return (
                        error.code() is StatusCode.UNAVAILABLE
                        and "small: its KV memory of 640 tokens" in details
                        and "large: draining" in details
                    )
                return False

            await until(unavailable)


async def test_bad_requests_and_unknown_models(valkey: Valkey) -> None:
    a = ScriptedWorker("a", make_card("first"))
    async with serving(valkey, queue_seconds=0) as client:
        assert (await client.failure()).code() is StatusCode.UNAVAILABLE
        async with working(client, a):
            error = await client.failure(GenerateRequest(text=""))
            assert error.code() is StatusCode.INVALID_ARGUMENT
            error = await client.failure(GenerateRequest(model="x", text="1"))
            assert error.code() is StatusCode.NOT_FOUND
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.gateway.Route(RouteRequest())
            assert caught.value.code() is StatusCode.INVALID_ARGUMENT
            assert a.requests == []


async def test_two_models_have_two_pools(valkey: Valkey) -> None:
    first, second = (ScriptedWorker("same id", make_card(model)) for model in ("m", "n"))
    async with serving(valkey) as client, working(client, first, second):
        models = (await client.gateway.ListModels(ListModelsRequest())).models
        assert [(model.model, model.workers) for model in models] == [("m", 1), ("n", 1)]
        await client.generate(GenerateRequest(model="n", packed=PROMPT))
        assert (len(first.requests), len(second.requests)) == (0, 1)
        only_n = await client.gateway.ListWorkers(ListWorkersRequest(model="n"))
        assert [worker.model for worker in only_n.workers] == ["n"]


async def test_a_client_that_goes_cancels_at_the_worker(valkey: Valkey) -> None:
    worker = ScriptedWorker("a", make_card(), endless)
    async with serving(valkey) as client, working(client, worker):
        call = client.gateway.Generate(REQUEST)
        await anext(aiter(call))
        call.cancel()
        await asyncio.wait_for(worker.cancelled.wait(), 10)

        async def released() -> bool:
            explained = await client.gateway.Explain(RouteRequest(generate=REQUEST))
            return explained.candidates[0].expected_tokens == 0

        await until(released)


async def test_the_deadline_ends_a_request_everywhere(valkey: Valkey) -> None:
    worker = ScriptedWorker("a", make_card(), endless)
    async with serving(valkey) as client, working(client, worker):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in client.gateway.Generate(REQUEST, timeout=0.3):
                pass
        assert caught.value.code() is StatusCode.DEADLINE_EXCEEDED
        await asyncio.wait_for(worker.cancelled.wait(), 10)


async def test_route_answers_with_a_request_that_the_worker_takes(valkey: Valkey) -> None:
    worker = ScriptedWorker("a", make_card())
    async with serving(valkey) as client, working(client, worker):
        routed = await client.gateway.Route(RouteRequest(generate=GenerateRequest(text="1 2")))
        assert (routed.worker, routed.address) == ("a", worker.address)
        assert (routed.prompt_tokens, routed.request.packed) == (2, pack_tokens([6, 7]))
        assert routed.request.sampling.HasField("seed")
        async with grpc.aio.insecure_channel(routed.address) as channel:
            stream = WorkerStub(channel).Generate(routed.request)
            assert len([response async for response in stream]) == 4


async def test_siblings_expect_what_is_on_its_way(valkey: Valkey) -> None:
    worker = ScriptedWorker("a", make_card(), endless)
    async with serving(valkey) as client, working(client, worker):
        call = client.gateway.Generate(REQUEST)
        await anext(aiter(call))
        (candidate,) = (await client.gateway.Explain(RouteRequest(generate=REQUEST))).candidates
        assert (candidate.matched_tokens, candidate.expected_tokens) == (0, 640)
        call.cancel()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"fingerprint": "another"}, "fingerprint another"),
        ({"stride": 32}, "stride 32"),
        ({"golden": make_card("n").golden}, "prefix hashes"),
        ({"chat_template": "{{ messages[0].content }}"}, "chat template"),
        ({"tokenizer_json": b"{}"}, "tokenizer does not load"),
    ],
)
async def test_a_worker_without_parity_is_refused(
    valkey: Valkey, changes: dict[str, Any], why: str
) -> None:
    good, bad = ScriptedWorker("good", make_card()), ScriptedWorker("bad", make_card(**changes))
    async with serving(valkey) as client, working(client, good), bad.running(client.address):

        async def refused() -> bool:
            return bad.sync_error is not None

        await until(refused)
        assert bad.sync_error is not None
        assert bad.sync_error.code() is StatusCode.FAILED_PRECONDITION
        assert why in str(bad.sync_error.details())
        assert [worker.worker for worker in await client.workers()] == ["good"]


async def test_two_gateways_agree(valkey: Valkey) -> None:
    a, b = ScriptedWorker("a", make_card()), ScriptedWorker("b", make_card())
    async with serving(valkey) as one, serving(valkey) as two, working(one, a), working(two, b):
        await until(lambda: live(one, a, b))
        await until(lambda: live(two, a, b))
        a.store(PROMPT)

        async def choices() -> set[str]:
            explained = [
                await client.gateway.Explain(RouteRequest(generate=REQUEST))
                for client in (one, two)
            ]
            return {f"{x.candidates[0].worker} {x.candidates[0].matched_tokens}" for x in explained}

        async def agree() -> bool:
            return await choices() == {"a 640"}

        await until(agree)


async def test_without_redis_requests_are_served_and_health_says_so(valkey: Valkey) -> None:
    a, b = ScriptedWorker("a", make_card()), ScriptedWorker("b", make_card())
    async with serving(valkey) as client, working(client, a, b):

        async def health(service: str) -> int:
            return (await client.health.Check(HealthCheckRequest(service=service))).status

        async def redis_is(status: int) -> bool:
            return await health("redis") == status

        await until(lambda: redis_is(HealthCheckResponse.SERVING))
        valkey.kill()
        await until(lambda: redis_is(HealthCheckResponse.NOT_SERVING))
        assert await health("") == HealthCheckResponse.SERVING
        assert await health("radixgate.v1.Gateway") == HealthCheckResponse.SERVING
        assert events(await client.generate())[-1] == "finished"
        valkey.start()
        await until(lambda: redis_is(HealthCheckResponse.SERVING))
        await until(lambda: live(client, a, b))


async def test_a_worker_that_is_gone_is_forgotten_within_its_lease(valkey: Valkey) -> None:
    a, b = ScriptedWorker("a", make_card()), ScriptedWorker("b", make_card())
    async with serving(valkey) as client, working(client, a):
        async with b.running(client.address):
            await until(lambda: live(client, a, b))

        async def only_a() -> bool:
            return [worker.worker for worker in await client.workers()] == ["a"]

        await until(only_a, seconds=5)
        assert (await client.generate())[0].started.worker == "a"


async def test_metrics_tell_what_was_predicted_and_delivered(valkey: Valkey) -> None:
    config = GatewayConfig(port=0, redis_url=valkey.url, metrics_port=0)
    worker = ScriptedWorker("a", make_card())
    async with gateway(config) as running, grpc.aio.insecure_channel(running.address) as channel:
        client = Client(running.address, GatewayStub(channel), HealthStub(channel))
        async with working(client, worker):
            worker.store(PROMPT)

            async def reported() -> bool:
                return [info.summary.count for info in await client.workers()] == [10]

            await until(reported)
            await client.generate()
            url = f"http://127.0.0.1:{running.metrics_port}/metrics"
            page = (await asyncio.to_thread(urlopen, url)).read().decode()
    for line in (
        'radixgate_gateway_requests_total{code="OK",method="Generate"} 1.0',
        'radixgate_gateway_prompt_tokens_total{fate="cached",model="words"} 640.0',
        'radixgate_gateway_predicted_cached_tokens_total{model="words"} 640.0',
        'gateway_worker_prompt_tokens_total{fate="cached",model="words",worker="a"} 640.0',
        'radixgate_gateway_worker_kept_ratio{model="words",worker="a"} 1.0',
        'radixgate_gateway_worker_trust{model="words",trust="live",worker="a"} 1.0',
        'radixgate_gateway_migrations_total{model="words"} 0.0',
        'radixgate_gateway_worker_circuit_open{model="words",worker="a"} 0.0',
        'radixgate_gateway_mirror_boundaries{model="words",worker="a"} 10.0',
        "radixgate_gateway_redis_up 1.0",
    ):
        assert line in page


async def test_a_taken_port_is_named(valkey: Valkey) -> None:
    async with serving(valkey) as client:
        port = int(client.address.split(":")[1])
        for config in (
            GatewayConfig(port=port, redis_url=valkey.url),
            GatewayConfig(port=0, redis_url=valkey.url, metrics_port=port),
        ):
            with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
                async with gateway(config):
                    pass


async def test_a_redis_that_is_not_there_is_told_and_waited_for(
    valkey: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    valkey.kill()
    worker = ScriptedWorker("a", make_card())
    async with serving(valkey) as client, worker.running(client.address):
        await until(_logged(caplog, "Redis cannot be used"))

        async def served() -> bool:
            return bool((await client.gateway.ListModels(ListModelsRequest())).models)

        await until(served)
        assert events(await client.generate())[-1] == "finished"
        valkey.start()
        await until(_logged(caplog, "Redis can be used again"))
        await until(lambda: live(client, worker))


def _logged(caplog: pytest.LogCaptureFixture, text: str) -> Callable[[], Awaitable[bool]]:
    async def logged() -> bool:
        return text in caplog.text

    return logged


async def test_a_redis_url_that_is_none() -> None:
    with pytest.raises(ConfigError, match="Redis URL 'nonsense'"):
        async with gateway(GatewayConfig(port=0, redis_url="nonsense")):
            pass
