"""Several models at one gateway, their aliases, and scopes that share nothing inside a model."""

import asyncio
from itertools import product
from urllib.request import urlopen

import grpc.aio
import pytest
from grpc_health.v1.health_pb2_grpc import HealthStub
from radixgate import errors
from radixgate.client import AsyncClient
from radixgate.v1.gateway_pb2 import RouteRequest
from radixgate.v1.gateway_pb2_grpc import GatewayStub
from radixgate.v1.generate_pb2 import GenerateRequest, Scope

from gateway.config import ConfigError, GatewayConfig
from gateway.main import gateway
from tests.gateway.doubles import ScriptedWorker, make_card
from tests.gateway.harness import PROMPT, Client, serving, working
from tests.summary.valkey import Valkey

pytestmark = pytest.mark.slow

SCOPES = [
    Scope(),
    Scope(tenant="x"),
    Scope(salt="x"),
    Scope(adapter="x"),
    Scope(adapter="y"),
    Scope(salt="y"),
    Scope(salt="x", adapter="x"),
]


async def test_an_alias_is_the_model_in_all_but_name(valkey: Valkey) -> None:
    config = GatewayConfig(
        port=0, redis_url=valkey.url, metrics_port=0, aliases=("fast=m", "absent=z", "n=m")
    )
    workers = [ScriptedWorker("w", make_card(model)) for model in ("m", "n")]
    async with gateway(config) as running, grpc.aio.insecure_channel(running.address) as channel:
        harness = Client(running.address, GatewayStub(channel), HealthStub(channel))
        async with working(harness, *workers), AsyncClient(running.address) as client:
            await client.generate(PROMPT, model="fast").result()
            chat = [{"role": "user", "content": "1"}]
            await client.chat(chat, model="fast").result()
            assert [request.model for request in workers[0].requests] == ["m", "m"]
            assert (await client.route(PROMPT, model="fast")).request.model == "m"
            assert (await client.explain(PROMPT, model="fast")).model == "m"
            assert [found.model for found in await client.workers("fast")] == ["m"]
            named = {found.model: list(found.aliases) for found in await client.models()}
            assert named == {"m": ["fast", "n"], "n": []}
            with pytest.raises(errors.NotFound, match="'absent' is an alias of 'z', which"):
                await client.generate(PROMPT, model="absent").result()
            with pytest.raises(errors.FailedPrecondition, match="'n' is served, and"):
                await client.generate(PROMPT, model="n").result()
            url = f"http://127.0.0.1:{running.metrics_port}/metrics"
            page = (await asyncio.to_thread(urlopen, url)).read().decode()
    assert 'radixgate_gateway_prompt_tokens_total{fate="new",model="m"}' in page
    assert 'model="fast"' not in page


async def test_wrong_aliases_are_named() -> None:
    with pytest.raises(ConfigError, match="alias 'fast': write ALIAS=MODEL"):
        async with gateway(GatewayConfig(port=0, aliases=("fast",))):
            pass


async def test_no_two_scopes_expect_anything_of_each_other(valkey: Valkey) -> None:
    async with (
        serving(valkey) as client,
        working(client, ScriptedWorker("w", make_card())),
        AsyncClient(client.address) as asking,
    ):
        for reserved, asked in product(SCOPES, SCOPES):
            route = RouteRequest(generate=GenerateRequest(packed=PROMPT, scope=reserved))
            explain = RouteRequest(generate=GenerateRequest(packed=PROMPT, scope=asked))
            routed = await client.gateway.Route(route)
            (candidate,) = (await client.gateway.Explain(explain)).candidates
            assert candidate.expected_tokens == (640 if reserved == asked else 0)
            await asking.finish(routed.reservation)
