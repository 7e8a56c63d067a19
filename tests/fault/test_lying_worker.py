"""A worker that reports what its cache does not hold is doubted, avoided and, later, forgiven.

Honest ones are not doubted, however fast they evict.
"""

import asyncio
import random
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import grpc.aio
import pytest
from prometheus_client.parser import text_string_to_metric_families
from radixgate.prefix import pack_tokens, unpack_tokens
from radixgate.v1.gateway_pb2 import (
    TRUST_LIVE,
    TRUST_SUSPECT,
    Candidate,
    ExplainResponse,
    RouteRequest,
)
from radixgate.v1.gateway_pb2_grpc import GatewayStub
from radixgate.v1.generate_pb2 import GenerateRequest, GenerateResponse, Started

from tests.e2e.load import Load, prompts
from tests.e2e.processes import Fleet, free_port
from tests.e2e.test_metrics import served
from tests.gateway.doubles import ScriptedWorker, echo, make_card
from tests.gateway.harness import until
from tests.models import VOCAB_SIZE

pytestmark = pytest.mark.slow

TOKENS_PER_SECOND = 20_000
HEAD, REST = 256, 384
CHANCE = random.Random(5)


def prompt(head: bytes = b"") -> bytes:
    """A new one, which begins with `head`."""
    return head + pack_tokens(CHANCE.randrange(900) for _ in range(REST))


async def prefill(
    request: GenerateRequest, worker: ScriptedWorker
) -> AsyncIterator[GenerateResponse]:
    """As `echo`, after as long as it takes to compute what is not cached."""
    tokens = len(unpack_tokens(request.packed)) - worker.cached(request)
    await asyncio.sleep(tokens / TOKENS_PER_SECOND)
    async for response in echo(request, worker):
        yield response


class Liar(ScriptedWorker):
    """Its cache was lost and its ledger was not: it reports what it stores, and has none of it."""

    lies = True

    def cached(self, request: GenerateRequest) -> int:
        return 0 if self.lies else super().cached(request)

    def confess(self) -> None:
        """Hold nothing, say so, and have what is stored from now on."""
        self.lies = False
        self._held.clear()


class Scene(NamedTuple):
    """A gateway, its metrics, an honest worker that holds `head`, and a liar."""

    gateway: GatewayStub
    metrics_port: int
    honest: ScriptedWorker
    liar: Liar
    head: bytes

    async def explain(self, packed: bytes) -> ExplainResponse:
        request = GenerateRequest(packed=packed)
        return await self.gateway.Explain(RouteRequest(generate=request))

    async def candidate(self, worker: ScriptedWorker, packed: bytes) -> Candidate:
        explained = await self.explain(packed)
        (found,) = (each for each in explained.candidates if each.worker == worker.name)
        return found

    async def holds(self, worker: ScriptedWorker, packed: bytes, tokens: int) -> bool:
        return (await self.candidate(worker, packed)).matched_tokens == tokens

    async def resynced(self) -> bool:
        return self.liar.resyncs > 0

    async def claimed(self) -> bytes:
        """A prompt of which `honest` holds the head, while `liar` says that it holds all."""
        packed = prompt(self.head)
        self.liar.store(packed)
        await until(lambda: self.holds(self.liar, packed, HEAD + REST))
        return packed

    async def generate(self, packed: bytes) -> Started:
        call = self.gateway.Generate(GenerateRequest(packed=packed))
        responses = [response async for response in call]
        assert responses[-1].HasField("finished")
        return responses[0].started


def fates_of(metrics_port: int) -> dict[str, float]:
    """Prompt tokens by fate."""
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=5) as page:
        families = list(text_string_to_metric_families(page.read().decode()))
    (family,) = (each for each in families if each.name == "radixgate_gateway_prompt_tokens")
    counts = (sample for sample in family.samples if sample.name.endswith("_total"))
    return {sample.labels["fate"]: sample.value for sample in counts}


@pytest.fixture
async def scene(fleet: Fleet) -> AsyncIterator[Scene]:
    redis_port, port, metrics_port = free_port(), free_port(), free_port()
    fleet.redis(redis_port).start()
    fleet.gateway(port, redis_port, "--metrics-port", str(metrics_port)).start()
    address, head = f"127.0.0.1:{port}", pack_tokens(range(HEAD))
    honest = ScriptedWorker("honest", make_card(), prefill)
    liar = Liar("liar", make_card(), prefill)
    for worker in (honest, liar):
        worker.load.prefill_tokens_per_second = TOKENS_PER_SECOND
    async with (
        grpc.aio.insecure_channel(address) as channel,
        honest.running(address),
        liar.running(address),
    ):
        scene = Scene(GatewayStub(channel), metrics_port, honest, liar, head)
        honest.store(head)

        async def ready() -> bool:
            candidates = (await scene.explain(head)).candidates
            return [each.trust for each in candidates] == [TRUST_LIVE] * 2

        async def known() -> bool:
            try:
                return await ready() and await scene.holds(honest, head, HEAD)
            except grpc.aio.AioRpcError:
                return False

        await until(known)
        yield scene


async def test_a_lying_worker_is_doubted_avoided_and_forgiven(scene: Scene) -> None:
    # Doubted: what it claims draws requests until it has broken a few promises.
    requests = 0
    while (await scene.candidate(scene.liar, scene.head)).trust == TRUST_LIVE:
        requests += 1
        assert requests <= 20
        started = await scene.generate(await scene.claimed())
        assert (started.worker, started.cached_tokens) == ("liar", 0)
        assert started.predicted_tokens == HEAD + REST
    packed = await scene.claimed()
    explained = await scene.explain(packed)
    best, other = explained.candidates
    assert (best.worker, other.worker, other.trust) == ("honest", "liar", TRUST_SUSPECT)
    assert "prompt tokens that it promised lately" in other.trust_reason
    assert "liar says it holds 640 and is doubted" in explained.reason

    # Avoided, though its snapshot repeats the lie: when it is tried again two requests tell.
    drawn = [await scene.generate(await scene.claimed()) for _ in range(20)]
    assert sum(started.worker == "liar" for started in drawn) <= 2
    assert all(started.cached_tokens >= HEAD for started in drawn if started.worker == "honest")
    await until(scene.resynced)

    async def settled() -> bool:
        tokens = served(scene.metrics_port)["radixgate_gateway_worker_prompt_tokens_total"]
        return tokens == (HEAD + REST) * (requests + 20)

    await until(settled)
    assert served(scene.metrics_port)["radixgate_gateway_doubts_total"] >= 1
    assert fates_of(scene.metrics_port)["stale"] >= (HEAD + REST) * requests

    # Forgiven: its next snapshot is true, and so is what it promises from then on.
    scene.liar.confess()
    packed = prompt()
    scene.liar.store(packed)

    async def believed() -> bool:
        known = await scene.candidate(scene.liar, packed)
        return known.trust == TRUST_LIVE and known.matched_tokens == REST

    await until(believed, 60)
    assert await scene.holds(scene.liar, scene.liar.requests[0].packed, 0)
    for _ in range(20):
        started = await scene.generate(packed)
        assert (started.worker, started.cached_tokens) == ("liar", REST)
    assert await believed()


async def test_honest_workers_whose_caches_are_too_small_are_not_doubted(
    fleet: Fleet, tiny_llama: Path
) -> None:
    redis_port, port, metrics_port = free_port(), free_port(), free_port()
    fleet.redis(redis_port).start()
    fleet.gateway(port, redis_port, "--metrics-port", str(metrics_port)).start()
    for name in ("a", "b"):
        fleet.worker(name, tiny_llama, [port], "--kv-memory", "800KiB").start()
    # Two caches of some 1,600 tokens, and 24 beginnings of 256 that take turns.
    load = Load([f"127.0.0.1:{port}"], prompts(VOCAB_SIZE, families=24, shared=256), clients=8)
    await load.count(300)
    assert set(await load.stop()) == {"OK"}
    fates = fates_of(metrics_port)
    assert fates["evicted"] > 10 * fates["stale"]
    assert served(metrics_port)["radixgate_gateway_doubts_total"] == 0
