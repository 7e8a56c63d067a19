"""Series that alerts and dashboards depend on: there before the first event, and true after it."""

import asyncio
from collections.abc import AsyncIterator
from urllib.request import urlopen

import grpc.aio
import pytest
from prometheus_client.parser import text_string_to_metric_families
from radixgate.v1.gateway_pb2 import RouteRequest
from radixgate.v1.gateway_pb2_grpc import GatewayStub
from radixgate.v1.generate_pb2 import GenerateResponse

from gateway.config import GatewayConfig
from gateway.main import gateway
from gateway.running import Gateway
from tests.gateway.doubles import Abort, ScriptedWorker, echo, make_card
from tests.gateway.harness import REQUEST, Client, HealthStub, until, working
from tests.summary.valkey import Valkey

pytestmark = pytest.mark.slow

MODEL = "words"
WAIT = 0.2


async def scrape(running: Gateway) -> dict[str, list[tuple[dict[str, str], float]]]:
    """All samples by their names, less the prefix."""
    url = f"http://127.0.0.1:{running.metrics_port}/metrics"
    page = (await asyncio.to_thread(urlopen, url)).read().decode()
    samples: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            name = sample.name.removeprefix("radixgate_gateway_")
            samples.setdefault(name, []).append((sample.labels, sample.value))
    return samples


async def test_a_models_series_are_there_from_its_first_worker_on(valkey: Valkey) -> None:
    config = GatewayConfig(port=0, redis_url=valkey.url, metrics_port=0)
    async with gateway(config) as running, grpc.aio.insecure_channel(running.address) as channel:
        before = await scrape(running)
        assert before["shed_total"] == [({"model": "", "reason": "no_worker"}, 0)]
        client = Client(running.address, GatewayStub(channel), HealthStub(channel))
        async with working(client, ScriptedWorker("a", make_card(MODEL))):
            samples = await scrape(running)
    for name, label, values in (
        ("shed_total", "reason", {"full", "late", "expired", "no_worker"}),
        ("prompt_tokens_total", "fate", {"cached", "stale", "elsewhere", "evicted", "new"}),
    ):
        here = [each for each in samples[name] if each[0]["model"] == MODEL]
        assert {labels[label] for labels, _ in here} == values
        assert {value for _, value in here} == {0}
    for name in (
        *("circuits_opened_total", "doubts_total", "hedges_total", "migrations_total"),
        *("predicted_cached_tokens_total", "retries_total", "queue_seconds_count"),
        "time_to_first_token_seconds_count",
    ):
        assert samples[name] == [({"model": MODEL}, 0)], name
    assert {labels["code"] for labels, _ in samples["requests_total"]} >= {"OK", "UNAVAILABLE"}


async def test_time_to_first_token_is_that_of_the_client(valkey: Valkey) -> None:
    """Counted once, from the arrival, with all that failed before it; not where it is not seen."""
    failed = asyncio.Event()

    async def fail_late_once(request, worker) -> AsyncIterator[GenerateResponse]:  # type: ignore[no-untyped-def]
        if not failed.is_set():
            failed.set()
            await asyncio.sleep(WAIT)
            raise Abort(grpc.StatusCode.UNAVAILABLE, "as asked")
        async for response in echo(request, worker):
            yield response

    workers = [ScriptedWorker(name, make_card(MODEL), fail_late_once) for name in "ab"]
    config = GatewayConfig(port=0, redis_url=valkey.url, metrics_port=0)
    async with gateway(config) as running, grpc.aio.insecure_channel(running.address) as channel:
        client = Client(running.address, GatewayStub(channel), HealthStub(channel))
        async with working(client, *workers):
            await client.generate()
            await client.gateway.Route(RouteRequest(generate=REQUEST))
            samples = await scrape(running)
    assert samples["retries_total"] == [({"model": MODEL}, 1)]
    assert samples["time_to_first_token_seconds_count"] == [({"model": MODEL}, 1)]
    ((_, seconds),) = samples["time_to_first_token_seconds_sum"]
    assert seconds >= WAIT


async def test_candidates_are_zero_while_a_model_has_no_worker(valkey: Valkey) -> None:
    worker = ScriptedWorker("a", make_card(MODEL))
    config = GatewayConfig(port=0, redis_url=valkey.url, metrics_port=0, lease_ms=500)
    async with gateway(config) as running, grpc.aio.insecure_channel(running.address) as channel:
        client = Client(running.address, GatewayStub(channel), HealthStub(channel))
        async with working(client, worker):
            samples = await scrape(running)
            assert samples["candidates"] == [({"model": MODEL}, 1)]

        async def gone() -> bool:
            return (await scrape(running))["candidates"] == [({"model": MODEL}, 0)]

        await until(gone)
