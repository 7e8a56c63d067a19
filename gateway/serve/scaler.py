"""The ExternalScaler service: what KEDA asks a gateway. Any gateway gives the same answer.

KEDA makes of each metric a HorizontalPodAutoscaler with an average value: value / target, rounded
up, is the size that it sets. After an error it keeps the size that there is, so that is what a
gateway answers that does not know yet which workers there are.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Final

import grpc
from externalscaler.externalscaler_pb2 import (
    DESCRIPTOR,
    GetMetricSpecResponse,
    GetMetricsRequest,
    GetMetricsResponse,
    IsActiveResponse,
    MetricSpec,
    MetricValue,
    ScaledObjectRef,
)
from grpc import StatusCode
from radixgate.calls import Calls
from radixgate.refused import RefusedError

from gateway.scale.demand import Demands
from gateway.scale.desired import idle, value
from gateway.scale.signals import Signals
from gateway.serve.answering import Answering, Context
from gateway.serve.metrics import Metrics
from gateway.serve.models import Models
from gateway.serve.trigger import Trigger

SCALER_NAME: Final = DESCRIPTOR.services_by_name["ExternalScaler"].full_name

LOOK_SECONDS: Final = 0.1
"""So soon a stream tells that workers are needed."""


class ScalerService:
    """Args: `demands` on all pools; `models`, which knows them; `knows` which workers of a model
    there are; `calls` under way; `metrics`.
    """

    def __init__(
        self,
        demands: Demands,
        models: Models,
        knows: Callable[[str], bool],
        *,
        calls: Calls,
        metrics: Metrics,
    ) -> None:
        self._demands = demands
        self._models = models
        self._knows = knows
        self._calls = calls
        self._answering = Answering(calls, metrics).answer
        # NOTE: streams never finish, so a gateway that leaves does not wait for them.
        self._streaming = Answering(Calls("this gateway"), metrics).answer

    def handlers(self) -> grpc.GenericRpcHandler:
        """All methods but StreamMetricSpec, for a server: targets change with metadata alone."""
        return grpc.method_handlers_generic_handler(
            SCALER_NAME,
            {
                "IsActive": grpc.unary_unary_rpc_method_handler(
                    self.is_active, ScaledObjectRef.FromString, IsActiveResponse.SerializeToString
                ),
                "StreamIsActive": grpc.unary_stream_rpc_method_handler(
                    self.stream_is_active,
                    ScaledObjectRef.FromString,
                    IsActiveResponse.SerializeToString,
                ),
                "GetMetricSpec": grpc.unary_unary_rpc_method_handler(
                    self.get_metric_spec,
                    ScaledObjectRef.FromString,
                    GetMetricSpecResponse.SerializeToString,
                ),
                "GetMetrics": grpc.unary_unary_rpc_method_handler(
                    self.get_metrics,
                    GetMetricsRequest.FromString,
                    GetMetricsResponse.SerializeToString,
                ),
            },
        )

    async def is_active(self, request: ScaledObjectRef, context: Context) -> IsActiveResponse:
        """Whether there is to be any worker."""
        async with self._answering("IsActive", context):
            return IsActiveResponse(result=self._is_active(self._trigger(request)))

    async def stream_is_active(self, request: ScaledObjectRef, context: Context) -> None:
        """The same as soon as it is known, and whenever it changes, until the gateway leaves."""
        async with self._streaming("StreamIsActive", context):
            trigger, told = self._trigger(request), None
            while True:
                with self._calls.call():
                    active = self._is_active(trigger) if self._knows(trigger.model) else None
                if active is not None and active != told:
                    await context.write(IsActiveResponse(result=active))
                    told = active
                await asyncio.sleep(LOOK_SECONDS)

    async def get_metric_spec(
        self, request: ScaledObjectRef, context: Context
    ) -> GetMetricSpecResponse:
        """The metric that is asked for, and its target."""
        async with self._answering("GetMetricSpec", context):
            trigger = Trigger.parse(request.scalerMetadata)
            spec = MetricSpec(
                metricName=trigger.metric.value,
                targetSize=_whole(trigger.target),
                targetSizeFloat=trigger.target,
            )
            return GetMetricSpecResponse(metricSpecs=[spec])

    async def get_metrics(self, request: GetMetricsRequest, context: Context) -> GetMetricsResponse:
        """The sum of the metric over all workers."""
        async with self._answering("GetMetrics", context):
            trigger = self._trigger(request.scaledObjectRef)
            metric, target = trigger.metric, trigger.target
            if request.metricName != metric.value:
                raise RefusedError(
                    StatusCode.INVALID_ARGUMENT,
                    f"metricName {request.metricName!r} is not the metric of this trigger, which is"
                    f" {metric.value!r}; GetMetricSpec names it",
                )
            signals = self._signals(trigger.model)
            now = value(metric, signals, target, scale_to_zero=trigger.scale_to_zero)
            # NOTE: who reads whole numbers alone comes to the same size.
            workers = math.ceil(_thousandths(now) / _thousandths(target))
            found = MetricValue(
                metricName=metric.value,
                metricValue=workers * _whole(target),
                metricValueFloat=now,
            )
            return GetMetricsResponse(metricValues=[found])

    def _is_active(self, trigger: Trigger) -> bool:
        return not trigger.scale_to_zero or not idle(self._signals(trigger.model))

    def _signals(self, model: str) -> Signals:
        """Raises RefusedError: UNAVAILABLE, nobody knows yet what they are of."""
        if not self._knows(model):
            raise RefusedError(
                StatusCode.UNAVAILABLE,
                f"this gateway has not read from Redis yet which workers of {model!r} there are;"
                " ask again, or another",
            )
        return self._demands.signals(model)

    def _trigger(self, request: ScaledObjectRef) -> Trigger:
        """What is asked for, of the model that is meant.

        Raises:
            RefusedError: INVALID_ARGUMENT, the metadata is wrong, or there are other models alone;
                FAILED_PRECONDITION, the name is that of a model and an alias.
        """
        trigger = Trigger.parse(request.scalerMetadata)
        try:
            model = self._models.resolve(trigger.model)
        except RefusedError as refusal:
            if refusal.code is StatusCode.NOT_FOUND:
                raise RefusedError(
                    StatusCode.INVALID_ARGUMENT, f"metadata: {refusal.message}"
                ) from refusal
            if refusal.code is not StatusCode.UNAVAILABLE:
                raise
            # NOTE: there has been no worker of any model yet, so nothing speaks against the name.
            model = self._models.meant(trigger.model)
        return trigger._replace(model=model)


def _whole(target: float) -> int:
    return max(1, round(target))


def _thousandths(number: float) -> int:
    """As KEDA counts."""
    return int(number * 1000)
