"""A client made from KEDA's contract calls a real gateway."""

import asyncio
import math

import grpc
import pytest
from externalscaler.externalscaler_pb2 import DESCRIPTOR, GetMetricsRequest, ScaledObjectRef
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub
from hypothesis import given
from hypothesis import strategies as st
from radixgate.refused import RefusedError

from gateway.config import GatewayConfig
from gateway.main import gateway
from gateway.scale.desired import TARGETS, Metric
from gateway.serve.trigger import Trigger
from tests.gateway.harness import serving, until, working
from tests.scale.doubles import CachingWorker, Keda, prompt
from tests.summary.valkey import Valkey

FIELDS = {
    "ScaledObjectRef": {"name": 1, "namespace": 2, "scalerMetadata": 3},
    "IsActiveResponse": {"result": 1},
    "GetMetricSpecResponse": {"metricSpecs": 1},
    "MetricSpec": {"metricName": 1, "targetSize": 2, "targetSizeFloat": 3},
    "GetMetricsRequest": {"scaledObjectRef": 1, "metricName": 2},
    "GetMetricsResponse": {"metricValues": 1},
    "MetricValue": {"metricName": 1, "metricValue": 2, "metricValueFloat": 3},
}


def test_the_contract_is_that_of_keda() -> None:
    found = {
        name: {field.name: field.number for field in message.fields}
        for name, message in DESCRIPTOR.message_types_by_name.items()
    }
    assert found == FIELDS
    service = DESCRIPTOR.services_by_name["ExternalScaler"]
    assert service.full_name == "externalscaler.ExternalScaler"
    streams = {method.name: method.server_streaming for method in service.methods}
    assert streams == {
        "IsActive": False,
        "StreamIsActive": True,
        "GetMetricSpec": False,
        "GetMetrics": False,
        "StreamMetricSpec": True,
    }


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({}, "'model' is missing"),
        ({"model": ""}, "'model' is missing"),
        ({"model": "m", "treshold": "1"}, "'treshold' is unknown; there are model, metric"),
        ({"model": "m", "modelFromEnv": "X"}, "'modelFromEnv' is unknown"),
        ({"model": "m", "metric": "hit_rate"}, "metric 'hit_rate' is unknown; there are cache_p"),
        (
            {"model": "m", "metric": "miss_rate", "target": "0"},
            "target '0' is no number from 0.001 to",
        ),
        ({"model": "m", "metric": "miss_rate", "target": "nan"}, "target 'nan' is no number"),
        ({"model": "m", "metric": "miss_rate", "target": "1e19"}, "target '1e19' is no number"),
        ({"model": "m", "metric": "miss_rate", "target": "inf"}, "target 'inf' is no number"),
        ({"model": "m", "metric": "miss_rate", "target": "half"}, "target 'half' is no number"),
        ({"model": "m", "target": "2"}, "leave it out"),
        ({"model": "m", "scaleToZero": "yes"}, "scaleToZero 'yes' is neither"),
    ],
)
def test_wrong_metadata_is_refused_by_name(metadata: dict[str, str], said: str) -> None:
    with pytest.raises(RefusedError, match=r"^metadata: ") as caught:
        Trigger.parse(metadata)
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert said in caught.value.message


@given(st.sampled_from(Metric))
def test_a_target_is_that_of_the_metric_unless_it_is_given(metric: Metric) -> None:
    trigger = Trigger.parse({"model": "m", "metric": metric.value, "enableTLS": "false"})
    assert trigger == Trigger("m", metric, TARGETS[metric], scale_to_zero=False)
    if metric is not Metric.DESIRED_WORKERS:
        given_one = {"model": "m", "metric": metric.value, "target": "0.25"}
        assert Trigger.parse(given_one).target == 0.25


@pytest.mark.slow
async def test_each_metric_comes_to_the_same_size_by_floats_and_by_integers(
    valkey: Valkey,
) -> None:
    a, b = CachingWorker("a"), CachingWorker("b")
    a.load.running = b.load.running = 3
    b.load.free_blocks -= 37
    async with serving(valkey) as one, working(one, a, b):
        for number in range(20):
            await one.generate(prompt(number % 14))
        for metric in Metric:
            async with Keda(one.address, metric=metric.value) as keda:
                spec, told = await keda.spec(), await keda.told()
                assert spec.metricName == metric.value
                assert spec.targetSizeFloat == TARGETS[metric]
                assert spec.targetSize == max(1, round(TARGETS[metric]))
                by_float = math.ceil(
                    int(told.metricValueFloat * 1000) / int(spec.targetSizeFloat * 1000)
                )
                assert math.ceil(told.metricValue / spec.targetSize) == by_float
                assert await keda.active()


@pytest.mark.slow
async def test_what_is_not_served_is_unimplemented(valkey: Valkey) -> None:
    async with serving(valkey) as one, Keda(one.address) as keda:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in keda.stub.StreamMetricSpec(keda.object):
                pass
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.slow
async def test_a_typo_never_looks_like_an_empty_pool(valkey: Valkey) -> None:
    async with serving(valkey, aliases=("fast=words",)) as one, Keda(one.address) as keda:
        # NOTE: before any model is known, none can be wrong.
        assert await first(keda) == 0
        async with working(one, CachingWorker("a")):
            assert await keda.value() == 1
            async with Keda(one.address, model="fast") as alias:
                assert await alias.value() == 1
            async with Keda(one.address, model="wrods") as typo:
                request = GetMetricsRequest(
                    scaledObjectRef=typo.object, metricName="desired_workers"
                )
                for method, asked in (("GetMetrics", request), ("IsActive", None)):
                    error = await typo.failure(method, asked)
                    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
                    assert "'wrods' is not served; there are words" in (error.details() or "")
            other = GetMetricsRequest(scaledObjectRef=keda.object, metricName="s0-miss_rate")
            error = await keda.failure("GetMetrics", other)
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "which is 'desired_workers'" in (error.details() or "")
            error = await keda.failure("GetMetricSpec", ScaledObjectRef())
            assert "'model' is missing" in (error.details() or "")


@pytest.mark.slow
async def test_who_has_not_read_which_workers_there_are_lets_the_size_be(valkey: Valkey) -> None:
    """It was 0, or as many as report to a gateway that is new while Redis is away."""
    async with serving(valkey) as old, working(old, CachingWorker("a"), CachingWorker("b")):
        valkey.kill()
        async with (
            serving(valkey) as new,
            working(new, CachingWorker("c")),
            Keda(new.address, scaleToZero="true") as keda,
        ):
            request = GetMetricsRequest(scaledObjectRef=keda.object, metricName="desired_workers")
            for method, asked in (("GetMetrics", request), ("IsActive", None)):
                error = await keda.failure(method, asked)
                assert error.code() is grpc.StatusCode.UNAVAILABLE
                assert "has not read from Redis yet which workers of 'words'" in error.details()
            told = asyncio.ensure_future(keda.stub.StreamIsActive(keda.object).read())
            await asyncio.sleep(0.5)
            assert not told.done()
            valkey.start()
            assert (await told).result
            assert await first(keda) > 0


@pytest.mark.slow
async def test_a_waiting_request_wakes_a_pool_at_zero_at_once(valkey: Valkey) -> None:
    async with serving(valkey) as one, Keda(one.address, scaleToZero="true") as keda:
        async with working(one, CachingWorker("a")):
            pass
        await until(lambda: _is(keda.value(), 0.0))
        assert not await keda.active()
        stream = keda.stub.StreamIsActive(keda.object)
        assert not (await stream.read()).result
        request = asyncio.create_task(one.generate(prompt(1)))
        assert (await stream.read()).result
        assert await keda.active()
        assert await keda.value() == 1
        async with working(one, CachingWorker("b")):
            assert len(await request) == 4
        async with Keda(one.address) as stays:
            assert await stays.active()


@pytest.mark.slow
async def test_a_gateway_that_leaves_ends_the_stream_and_does_not_wait_for_it(
    valkey: Valkey,
) -> None:
    config = GatewayConfig(port=0, redis_url=valkey.url)
    async with gateway(config) as running, Keda(running.address) as keda:
        stream = keda.stub.StreamIsActive(keda.object)
        assert (await stream.read()).result
        async with asyncio.timeout(30):
            await running.stop(0.0, 1000.0)
        assert await stream.code() is grpc.StatusCode.UNAVAILABLE
        assert "ask another" in await stream.details()


@pytest.mark.slow
async def test_the_service_is_found_by_reflection_and_health(valkey: Valkey) -> None:
    async with serving(valkey) as one, Keda(one.address) as keda:
        health = await one.health.Check(HealthCheckRequest(service="externalscaler.ExternalScaler"))
        assert health.status == HealthCheckResponse.SERVING
        stub = ServerReflectionStub(keda.channel)
        asked = reflection_pb2.ServerReflectionRequest(
            file_containing_symbol="externalscaler.ExternalScaler"
        )
        async for answer in stub.ServerReflectionInfo(iter([asked])):
            assert answer.file_descriptor_response.file_descriptor_proto


async def first(keda: Keda) -> float:
    """What a gateway says as soon as it says anything."""
    while True:
        try:
            return await keda.value()
        except grpc.aio.AioRpcError as error:
            assert error.code() is grpc.StatusCode.UNAVAILABLE  # noqa: PT017
        await asyncio.sleep(0.01)


async def _is(value, wanted) -> bool:  # type: ignore[no-untyped-def]
    return (await value) == wanted
