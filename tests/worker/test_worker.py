"""A whole worker over gRPC, with a tiny model: answers, refusals, cancellation, start-up."""

import asyncio
import socket
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import grpc.aio
import pytest
import torch
from radixgate.namespace import Namespace
from radixgate.prefix import boundary_hashes, pack_tokens, unpack_hashes
from radixgate.v1.generate_pb2 import (
    FINISH_REASON_LENGTH,
    GenerateRequest,
    GenerateResponse,
    Misses,
    Sampling,
    Scope,
    Stopping,
    TokenIds,
)
from radixgate.v1.worker_pb2 import DescribeRequest, InventoryRequest, ModelCard
from radixgate.v1.worker_pb2_grpc import WorkerStub
from tokenizers import Tokenizer

from tests.models import make_tiny
from tests.worker.test_report import Gateway, serving
from worker.main import ConfigError, Worker, WorkerConfig, worker
from worker.model.weights import WeightFormat

pytestmark = pytest.mark.slow

# Of the tiny model: 16 blocks of 16 tokens, 2 layers of keys and values, 2 heads of 16, fp32.
KV_BYTES = 16 * 16 * 2 * 2 * 2 * 16 * 4


@asynccontextmanager
async def serve(config: WorkerConfig) -> AsyncIterator[tuple[Worker, WorkerStub]]:
    async with worker(config) as running, grpc.aio.insecure_channel(running.address) as channel:
        yield running, WorkerStub(channel)


def generation(length: int = 100, max_tokens: int = 8, **options: object) -> GenerateRequest:
    return GenerateRequest(
        request_id="r",
        packed=pack_tokens(range(3, 3 + length)),
        sampling=Sampling(temperature=0),
        stopping=Stopping(max_tokens=max_tokens, ignore_eos=True),
        **options,
    )


async def collect(stub: WorkerStub, request: GenerateRequest) -> list[GenerateResponse]:
    return [message async for message in stub.Generate(request)]


@pytest.fixture
def config(tiny_llama: Path) -> WorkerConfig:
    return WorkerConfig(tiny_llama, device="cpu", kv_memory=KV_BYTES, threads=1, worker_id="w1")


async def test_a_stream_is_started_tokens_finished_and_the_second_is_cached(
    config: WorkerConfig,
) -> None:
    async with serve(config) as (_, stub):
        answers = []
        for cached in (0, 96):
            first, *middle, last = await collect(stub, generation())
            assert (first.started.worker, first.started.request_id) == ("w1", "r")
            assert (first.started.prompt_tokens, first.started.cached_tokens) == (100, cached)
            assert last.finished.reason == FINISH_REASON_LENGTH
            assert last.finished.output_tokens == 8
            assert last.finished.cached_tokens == cached
            answers.append([token for message in middle for token in message.tokens.ids])
        assert len(answers[0]) == 8
        assert answers[0] == answers[1]


async def test_the_end_says_why_prompt_tokens_were_not_cached(config: WorkerConfig) -> None:
    async with serve(config) as (_, stub):

        async def misses(length: int, salt: str = "") -> Misses:
            asked = generation(length, max_tokens=1, scope=Scope(tenant="t", salt=salt))
            return (await collect(stub, asked))[-1].finished.misses

        assert await misses(100) == Misses(new_tokens=100)
        assert await misses(150) == Misses(new_tokens=54, diverges_at=96)
        assert await misses(140, "s") == Misses(new_tokens=12, elsewhere_tokens=128)
        await collect(stub, generation(length=240))
        evicted = await misses(150)
        assert evicted.evicted_tokens > 0
        assert evicted.evicted_tokens + evicted.new_tokens == 150 - evicted.diverges_at


async def test_the_inventory_is_every_boundary_that_is_cached(config: WorkerConfig) -> None:
    async with serve(config) as (_, stub):
        await collect(stub, generation(length=150))
        card: ModelCard = await stub.Describe(DescribeRequest())
        (inventory,) = [chunk async for chunk in stub.Inventory(InventoryRequest())]
    seed = Namespace(card.fingerprint).seed()
    assert unpack_hashes(inventory.hashes) == boundary_hashes(generation(150).packed, 64, seed)
    assert inventory.last
    assert inventory.digest.count == 2


async def test_the_card_describes_the_model_and_its_goldens_hold(config: WorkerConfig) -> None:
    async with serve(config) as (_, stub):
        card: ModelCard = await stub.Describe(DescribeRequest())
    assert (card.worker, card.model, card.vocab_size) == ("w1", "tiny-llama", 512)
    assert (card.max_context, card.block_size, card.stride) == (2048, 16, 64)
    assert (card.num_blocks, card.kv_bytes, card.kv_format) == (16, KV_BYTES, "none")
    assert card.special_tokens["eos_token"] == "<|im_end|>"
    tokenizer = Tokenizer.from_buffer(card.tokenizer_json)
    assert len(card.golden.tokenized) >= 4
    for golden in card.golden.tokenized:
        assert tokenizer.encode(golden.text).ids == list(golden.ids)
    (rendered,) = card.golden.rendered
    assert rendered.text.startswith("<|im_start|>user\n")
    assert rendered.text.endswith("<|im_start|>assistant\n")
    scopes = set()
    for golden in card.golden.hashed:
        scope = Namespace(card.fingerprint, "", golden.scope.tenant, golden.scope.salt)
        scopes.add(scope)
        assert list(golden.hashes) == boundary_hashes(golden.packed, 64, scope.seed())
        assert len(golden.hashes) == 3
    assert len(scopes) == 2


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (GenerateRequest(), grpc.StatusCode.INVALID_ARGUMENT),
        (GenerateRequest(text="hi"), grpc.StatusCode.INVALID_ARGUMENT),
        (GenerateRequest(tokens=TokenIds(ids=[512])), grpc.StatusCode.INVALID_ARGUMENT),
        (GenerateRequest(tokens=TokenIds(ids=[1] * 2048)), grpc.StatusCode.INVALID_ARGUMENT),
        (GenerateRequest(tokens=TokenIds(ids=[1] * 256)), grpc.StatusCode.FAILED_PRECONDITION),
        (GenerateRequest(tokens=TokenIds(ids=[1]), model="x"), grpc.StatusCode.NOT_FOUND),
    ],
)
async def test_bad_requests_have_the_right_status(
    config: WorkerConfig, request_: GenerateRequest, code: grpc.StatusCode
) -> None:
    async with serve(config) as (_, stub):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await collect(stub, request_)
        assert refused.value.code() is code
        assert len(await collect(stub, generation(max_tokens=1))) == 3


async def idle(running: Worker) -> None:
    async with asyncio.timeout(20):
        while running.engine.load.running or running.engine.load.waiting:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert not running.engine._sinks
    assert running.engine.load.kv.running_blocks == 0


async def test_a_client_that_goes_away_frees_everything(config: WorkerConfig) -> None:
    async with serve(replace(config, max_running=1)) as (running, stub):
        streaming = stub.Generate(generation(max_tokens=150))
        assert (await streaming.read()).HasField("started")
        waiting = stub.Generate(generation())
        late = stub.Generate(generation(max_tokens=150), timeout=0.05)
        with pytest.raises(grpc.aio.AioRpcError) as expired:
            await anext(aiter(late))
        assert expired.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        waiting.cancel()
        streaming.cancel()
        await idle(running)


async def test_a_broken_engine_is_an_error_for_all(
    config: WorkerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(config) as (running, stub):

        def broken(*_: object) -> None:
            raise AssertionError("a block has two owners")

        monkeypatch.setattr("worker.kv.manager.KVManager.commit", broken)
        with pytest.raises(grpc.aio.AioRpcError, match="a block has two owners") as error:
            await collect(stub, generation())
        assert error.value.code() is grpc.StatusCode.INTERNAL
        with pytest.raises(AssertionError, match="two owners"):
            await running.failed


async def test_what_is_held_is_reported_and_a_draining_worker_says_so(config: WorkerConfig) -> None:
    gateway = Gateway()
    async with serving(gateway) as port:
        reporting = replace(config, gateways=(f"127.0.0.1:{port}",))
        async with serve(reporting) as (running, stub):
            card: ModelCard = await stub.Describe(DescribeRequest())
            await collect(stub, generation(length=200))
            seed = Namespace(card.fingerprint).seed()
            names = boundary_hashes(pack_tokens(range(3, 203)), 64, seed)
            await gateway.until(lambda: gateway.held == set(names))
            (hello,) = gateway.hellos
            assert (hello.worker, hello.epoch, hello.address) == ("w1", card.epoch, running.address)
            assert hello.fingerprint == card.fingerprint
            await running.leave(grace_seconds=5)
        await gateway.until(lambda: gateway.ended == 1)
        assert gateway.loads[-1].draining


async def test_evictions_are_reported(config: WorkerConfig) -> None:
    gateway = Gateway()
    async with (
        serving(gateway) as port,
        serve(replace(config, gateways=(f"127.0.0.1:{port}",))) as (_, stub),
    ):
        card: ModelCard = await stub.Describe(DescribeRequest())
        seed = Namespace(card.fingerprint).seed()
        for start in (3, 203):
            packed = pack_tokens(range(start, start + 200))
            await collect(stub, GenerateRequest(packed=packed, stopping=Stopping(max_tokens=1)))
            names = boundary_hashes(packed, 64, seed)
            await gateway.until(lambda names=names: set(names) <= gateway.held)
        assert len(gateway.held) <= 4


async def test_metrics_are_served(config: WorkerConfig) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with serve(replace(config, metrics_port=port)) as (_, stub):
        await collect(stub, generation())
        url = f"http://127.0.0.1:{port}/metrics"
        page = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())
    assert 'radixgate_worker_prompt_tokens_total{source="new"} 100.0' in page
    assert 'radixgate_worker_requests_total{outcome="length"} 1.0' in page
    assert "NaN" not in page


async def test_a_taken_port_is_a_config_error(config: WorkerConfig) -> None:
    async with worker(config) as running:
        port = int(running.address.rpartition(":")[2])
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
            async with worker(replace(config, port=port)):
                pass


async def test_formats_of_layers_are_on_the_card_and_in_the_budget(config: WorkerConfig) -> None:
    mixed = replace(config, kv_format="int8", kv_format_layers="0:none")
    async with serve(mixed) as (_, stub):
        card: ModelCard = await stub.Describe(DescribeRequest())
        *_, last = await collect(stub, generation())
    assert last.finished.output_tokens == 8
    exact, int8 = 16 * 4, 16 + 4  # bytes of a row
    assert card.kv_format == "int8 (0:none)"
    assert card.num_blocks == 16 * 2 * exact // (exact + int8)
    assert card.kv_bytes == card.num_blocks * KV_BYTES // 16 * (exact + int8) // (2 * exact)


async def test_the_dtype_of_the_model_is_that_of_its_kv(
    config: WorkerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where models are computed in bfloat16."""
    monkeypatch.setattr("worker.model.loader.choose_dtype", lambda *_: torch.bfloat16)
    async with serve(config) as (_, stub):
        card: ModelCard = await stub.Describe(DescribeRequest())
        *_, last = await collect(stub, generation())
    assert (card.num_blocks, card.kv_bytes) == (2 * 16, KV_BYTES)
    assert last.finished.output_tokens == 8


async def test_a_device_without_memory_is_a_config_error(
    config: WorkerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr("worker.main.load_model", full)
    with pytest.raises(ConfigError, match=rf"{KV_BYTES} bytes of KV .*--kv-memory.* 2.00 GiB"):
        async with worker(config):
            pass


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"device": "cuda:99"}, "device 'cuda:99' was asked for, but torch"),
        ({"device": "tpu"}, "device 'tpu' is unknown"),
        ({"model": Path("/nowhere")}, "/nowhere does not exist"),
        ({"kv_memory": 1000}, "at least 5 blocks"),
        ({"kv_format": "int3"}, "int3"),
        ({"kv_format_layers": "0-2:int8"}, "the model has layers 0 to 1"),
        ({"stride": 24}, "stride 24 is not a multiple of block size 16"),
        ({"max_running": 500}, "max running 500"),
    ],
)
async def test_what_cannot_run_is_a_config_error(
    config: WorkerConfig, change: dict, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        async with worker(replace(config, **change)):
            pass


async def test_models_differ_by_fingerprint(config: WorkerConfig, tmp_path: Path) -> None:
    other = make_tiny(tmp_path / "other", "llama", seed=1)
    cards = []
    for changes in ({}, {"model": other}, {"weights": WeightFormat.INT8}):
        async with serve(replace(config, **changes)) as (_, stub):
            *_, last = await collect(stub, generation())
            assert last.finished.output_tokens == 8
            cards.append(await stub.Describe(DescribeRequest()))
    assert len({card.fingerprint for card in cards}) == 3
    assert cards[0].epoch < cards[1].epoch
