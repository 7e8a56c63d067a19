"""A worker with a small cache, and KEDA's side of the contract."""

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
from externalscaler.externalscaler_pb2 import (
    GetMetricsRequest,
    MetricSpec,
    MetricValue,
    ScaledObjectRef,
)
from externalscaler.externalscaler_pb2_grpc import ExternalScalerStub
from radixgate.prefix import pack_hashes, pack_tokens
from radixgate.v1.generate_pb2 import GenerateRequest, GenerateResponse
from radixgate.v1.sync_pb2 import REMOVAL_REASON_CAPACITY, Delta, Removal, Report

from tests.gateway.doubles import BLOCK_SIZE, STRIDE, ScriptedWorker, echo, make_card

PROMPT_TOKENS = 640
CACHED_PROMPTS = 5


class CachingWorker(ScriptedWorker):
    """Holds the last `CACHED_PROMPTS` prompts of `PROMPT_TOKENS`, and reports what it evicts."""

    def __init__(self, name: str, model: str = "words") -> None:
        blocks = CACHED_PROMPTS * PROMPT_TOKENS // BLOCK_SIZE
        super().__init__(name, make_card(model, num_blocks=blocks), _compute)
        self.load.total_blocks = blocks
        self.load.free_blocks = blocks
        self.load.prefill_tokens_per_second = 1e6

    def keep(self, packed: bytes) -> None:
        """Hold a prompt as what was used last."""
        names = self.boundaries(packed)
        new = [name for name in names if name not in self._held]
        kept = [name for name in self._held if name not in names] + [*names]
        room = CACHED_PROMPTS * PROMPT_TOKENS // STRIDE
        evicted, kept = kept[: max(0, len(kept) - room)], kept[-room:]
        # NOTE: a dict, since the order in which prompts were used counts.
        self._held = dict.fromkeys(kept)  # type: ignore[assignment]
        used = len(kept) * STRIDE // BLOCK_SIZE
        self.load.free_blocks = self.load.total_blocks - used
        self.load.cached_blocks = used
        self._seq += 1
        removed = [Removal(hashes=pack_hashes(evicted), reason=REMOVAL_REASON_CAPACITY)]
        delta = Delta(
            seq=self._seq,
            stored=pack_hashes(new),
            removed=removed if evicted else [],
            digest=self._digest(),
        )
        self._reports.put_nowait(Report(delta=delta))


async def _compute(
    request: GenerateRequest, worker: ScriptedWorker
) -> AsyncIterator[GenerateResponse]:
    assert isinstance(worker, CachingWorker)
    async for response in echo(request, worker):
        yield response
        if response.HasField("started"):
            worker.keep(request.packed)


def prompt(number: int, model: str = "words") -> GenerateRequest:
    """Prompts have no boundary in common."""
    ids = [5 + (number + at * (number // 900 + 1)) % 900 for at in range(PROMPT_TOKENS)]
    return GenerateRequest(model=model, packed=pack_tokens(ids))


class Keda:
    """Asks one gateway as KEDA does. Args: its `address`; `metadata` of the trigger."""

    def __init__(self, address: str, **metadata: str) -> None:
        self.channel = grpc.aio.insecure_channel(address)
        self.stub: Any = ExternalScalerStub(self.channel)
        self.object = ScaledObjectRef(
            name="words",
            namespace="default",
            scalerMetadata={"scalerAddress": address, "model": "words", **metadata},
        )

    async def spec(self) -> MetricSpec:
        [spec] = (await self.stub.GetMetricSpec(self.object)).metricSpecs
        return spec

    async def told(self) -> MetricValue:
        """The metric that its own answer names."""
        name = (await self.spec()).metricName
        request = GetMetricsRequest(scaledObjectRef=self.object, metricName=name)
        [told] = (await self.stub.GetMetrics(request)).metricValues
        assert told.metricName == name
        return told

    async def value(self) -> float:
        return (await self.told()).metricValueFloat

    async def active(self) -> bool:
        return bool((await self.stub.IsActive(self.object)).result)

    async def failure(self, method: str, request: Any = None) -> grpc.aio.AioRpcError:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await getattr(self.stub, method)(self.object if request is None else request)
        return caught.value

    async def __aenter__(self) -> "Keda":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()
