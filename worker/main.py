"""One worker process: model, KV memory, engine, gRPC server and reports, from start to drain."""

import asyncio
import logging
import random
import secrets
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from prometheus_client import CollectorRegistry, start_http_server
from radixgate.serving import StopSignals
from radixgate.v1.sync_pb2 import Hello
from radixgate.v1.worker_pb2 import ModelCard
from tokenizers import Tokenizer

from worker.engine.core import EngineConfig, EngineCore
from worker.engine.engine import Engine
from worker.engine.metrics import EngineMetrics, name_worker
from worker.kv.events import KvEvents
from worker.kv.format import by_name
from worker.kv.manager import KVManager
from worker.kv.memory import MemoryPolicy
from worker.kv.policy import DEFAULT_EVICTION, POLICIES
from worker.kv.shares import parse_shares
from worker.model.device import choose_device, look
from worker.model.directory import TOKENIZER
from worker.model.loader import load_model
from worker.model.paged import PagedModel
from worker.model.weights import WeightFormat
from worker.report import Reporter
from worker.serve.admission import Served
from worker.serve.card import CardMaker
from worker.serve.drain import Drain
from worker.serve.heat import Heat
from worker.serve.pins import Pinner
from worker.serve.prefill import Prefill
from worker.serve.resume import Resumer
from worker.serve.scopes import Scopes
from worker.serve.server import WorkerServer
from worker.serve.service import WorkerService
from worker.serve.warm import Warmer

_log = logging.getLogger(__name__)

STOP_SECONDS = 2.0


class ConfigError(Exception):
    """The worker cannot start as it was asked to; the message is one clear line."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """How to run a worker.

    Args:
        model: directory of a Hugging Face model.
        model_name: on the wire; None: the directory's name.
        host: to listen on.
        port: to listen on; 0 is any free one.
        advertise: address at which gateways reach this worker; None: `host:port`.
        gateways: addresses to report to, tried in turn; none: a worker on its own.
        worker_id: None: the advertised address.
        device: to compute on, see `worker.model.device.choose_device`.
        weights: how a CPU keeps those of linear layers.
        kv_format: see `worker.kv.format.by_name`.
        kv_format_layers: exceptions to it; none: "".
        kv_memory: bytes for KV.
        eviction: what goes first when blocks are needed, a name in `worker.kv.policy.POLICIES`.
        tenant_shares: see `worker.kv.shares.parse_shares`; none: "".
        pin_share: part of the KV memory that pins may hold.
        block_size: tokens of a block.
        stride: tokens between boundaries, whole blocks.
        max_running: sequences that hold blocks at once.
        token_budget: tokens of one step.
        chunk_ms: by so much at most the prompts in one step delay its generations; small keeps
            tokens coming evenly, large speeds prefill.
        metrics_port: of the Prometheus endpoint; None: there is none.
        threads: that compute; None: as many as torch takes.
        grace_seconds: that requests in flight get at the end.
    """

    model: Path
    model_name: str | None = None
    host: str = "127.0.0.1"
    port: int = 0
    advertise: str | None = None
    gateways: tuple[str, ...] = ()
    worker_id: str | None = None
    device: str = "auto"
    weights: WeightFormat = WeightFormat.FLOAT32
    kv_format: str = "none"
    kv_format_layers: str = ""
    kv_memory: int = 512 * 1024 * 1024
    eviction: str = DEFAULT_EVICTION
    tenant_shares: str = ""
    pin_share: float = 0.25
    block_size: int = 16
    stride: int = 64
    max_running: int = 32
    token_budget: int = 256
    chunk_ms: float = 200.0
    metrics_port: int | None = None
    threads: int | None = None
    grace_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that serves.

    Args:
        address: host:port that it listens on.
        engine: behind the service.
        drain: how it leaves.
        failed: done, with the error, when the engine or the reporter has broken.
        hottest_key: opens `Worker.Hottest`; told in Hello alone.
    """

    address: str
    engine: Engine
    drain: Drain
    failed: asyncio.Future[None]
    hottest_key: bytes

    async def leave(self, grace_seconds: float) -> None:
        """Drain, and end what is unfinished then."""
        await self.drain.run(grace_seconds)
        await self.drain.end()


def run_worker(config: WorkerConfig) -> None:
    """Serve until SIGTERM or SIGINT, then drain; a second signal ends at once.

    Raises:
        ConfigError: the worker cannot be run as asked.
        RuntimeError: something broke while serving.
        SystemExit: 128 + n, a second signal n ended it.
    """
    asyncio.run(_run(config))


async def _run(config: WorkerConfig) -> None:
    signals = StopSignals()
    async with worker(config) as running:
        _log.info("worker ready on %s", running.address)
        stop = asyncio.create_task(signals.wait())
        await asyncio.wait({stop, running.failed}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if running.failed.done():
            raise RuntimeError("the worker broke") from running.failed.exception()
        _log.info("worker is draining")
        await signals.unless_repeated(running.leave(config.grace_seconds))


@asynccontextmanager
async def worker(config: WorkerConfig) -> AsyncIterator[Worker]:
    """A worker that serves as long as the context lasts.

    Raises:
        ConfigError: the worker cannot be run as asked.
    """
    async with AsyncExitStack() as stack:
        try:
            running = await _assemble(config, stack)
        except (OSError, ValueError) as error:
            raise ConfigError(str(error)) from error
        except torch.OutOfMemoryError as error:
            raise ConfigError(
                f"the model and {config.kv_memory} bytes of KV do not fit on device "
                f"{config.device!r}; give less to KV (--kv-memory) or take another: {error}"
            ) from error
        yield running


async def _assemble(config: WorkerConfig, stack: AsyncExitStack) -> Worker:
    # NOTE: bound first, since loading a model to find the port taken would take long.
    server = WorkerServer(config.host, config.port)
    stack.push_async_callback(server.stop, 0)
    address = f"{config.host}:{server.port}"
    registry = CollectorRegistry()
    if config.metrics_port is not None:
        metrics_server, _ = start_http_server(config.metrics_port, config.host, registry)
        stack.callback(metrics_server.server_close)
        stack.callback(metrics_server.shutdown)

    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(error: BaseException) -> None:
        if not failed.done():
            failed.set_exception(error)

    parts = _build_engine(config, registry, fail)
    parts.engine.start()
    stack.callback(parts.engine.stop)
    card = _card(config, parts, address)
    name_worker(registry, card)
    cards = CardMaker(card, config.model, parts.tokenizer_json)
    served = _served(card, parts)
    prefill = Prefill(served, parts.engine)
    hottest_key = secrets.token_bytes(16)
    reporter: Reporter | None = None

    async def tell() -> None:
        await server.not_serving()
        if reporter:
            await reporter.tell_draining()

    drain = Drain(card.worker, tell)
    service = WorkerService(
        card.worker,
        served,
        cards,
        engine=parts.engine,
        events=parts.events,
        pinner=Pinner(card.worker, prefill, config.block_size),
        warmer=Warmer(card.worker, prefill, config.block_size, lambda: drain.begun),
        heat=Heat(prefill, served.scopes, hottest_key),
        resumer=Resumer(parts.tokenizer),
        drain=drain,
    )
    await server.start(service)
    if config.gateways:
        reporter = _reporter(config, card, parts, drain, address, hottest_key=hottest_key)
        task = asyncio.create_task(_guard(reporter.run(), fail))
        stack.push_async_callback(_close, reporter, task)
    return Worker(address, parts.engine, drain, failed, hottest_key)


@dataclass(frozen=True, slots=True)
class _Parts:
    """An engine and what the rest of the worker needs to know of it."""

    model: PagedModel
    tokenizer_json: bytes
    tokenizer: Tokenizer
    kv_format: str
    num_blocks: int
    bytes_per_block: int
    events: KvEvents
    manager: KVManager
    engine: Engine


def _build_engine(
    config: WorkerConfig,
    registry: CollectorRegistry,
    on_failure: Callable[[BaseException], None],
) -> _Parts:
    if config.threads:
        torch.set_num_threads(config.threads)
    kv_format = by_name(config.kv_format, config.kv_format_layers)
    device = choose_device(config.device, look())
    model = load_model(config.model, device, weights=config.weights)
    _log.info("model %s: computed on %s in %s", model.spec.name, model.device, model.dtype)
    tokenizer_json = (config.model / TOKENIZER).read_bytes()
    shape = model.spec.kv_shape(config.block_size)
    at_least = config.stride // config.block_size + 1
    num_blocks = kv_format.blocks_in(config.kv_memory, shape, model.dtype, at_least)
    bytes_per_block = kv_format.bytes_per_block(shape, model.dtype)
    layers = kv_format.allocate(shape, num_blocks, model.device, model.dtype)
    model.warm_up(layers)
    _log.info(
        "KV memory: %d blocks of %d tokens, %d bytes; format %s, %.4g bits an element",
        num_blocks,
        config.block_size,
        num_blocks * bytes_per_block,
        kv_format.name,
        kv_format.bits_per_element(shape, model.dtype),
    )
    events = KvEvents(threading.Lock())
    policy = MemoryPolicy(
        eviction=POLICIES[config.eviction],
        shares=parse_shares(config.tenant_shares),
        pin_share=config.pin_share,
    )
    manager = KVManager(num_blocks, config.block_size, config.stride, events, policy)
    tokenizer = Tokenizer.from_buffer(tokenizer_json)
    core = EngineCore(
        partial(model.forward, kv=layers),
        manager,
        tokenizer=tokenizer,
        config=EngineConfig(
            config.stride,
            config.max_running,
            config.token_budget,
            config.chunk_ms / 1000,
            model.spec.attention_tokens,
        ),
        metrics=EngineMetrics(registry, bytes_per_block),
        clock=time.monotonic,
        device=model.device,
    )
    post = asyncio.get_running_loop().call_soon_threadsafe
    engine = Engine(core, time.monotonic, post, on_failure)
    return _Parts(
        model,
        tokenizer_json,
        tokenizer,
        kv_format.name,
        num_blocks,
        bytes_per_block,
        events,
        manager,
        engine,
    )


def _card(config: WorkerConfig, parts: _Parts, address: str) -> ModelCard:
    """The card but for what `CardMaker` adds."""
    spec = parts.model.spec
    return ModelCard(
        worker=config.worker_id or config.advertise or address,
        epoch=time.time_ns(),
        model=config.model_name or spec.name,
        fingerprint=spec.fingerprint,
        vocab_size=spec.vocab_size,
        max_context=spec.max_context,
        block_size=config.block_size,
        stride=config.stride,
        kv_format=parts.kv_format,
        num_blocks=parts.num_blocks,
        kv_bytes=parts.num_blocks * parts.bytes_per_block,
    )


def _served(card: ModelCard, parts: _Parts) -> Served:
    return Served(
        model=card.model,
        scopes=Scopes(card.fingerprint),
        vocab_size=card.vocab_size,
        max_context=card.max_context,
        kv_tokens=parts.manager.capacity,
        eos_token_ids=parts.model.spec.eos_token_ids,
    )


def _reporter(
    config: WorkerConfig,
    card: ModelCard,
    parts: _Parts,
    drain: Drain,
    address: str,
    *,
    hottest_key: bytes,
) -> Reporter:
    hello = Hello(
        worker=card.worker,
        epoch=card.epoch,
        address=config.advertise or address,
        model=card.model,
        fingerprint=card.fingerprint,
        block_size=card.block_size,
        stride=card.stride,
        num_blocks=card.num_blocks,
        hottest_key=hottest_key,
    )
    return Reporter(
        hello,
        parts.events,
        lambda: (parts.engine.load, drain.begun),
        config.gateways,
        random.Random(card.epoch),
    )


async def _guard(work: Awaitable[None], fail: Callable[[BaseException], None]) -> None:
    try:
        await work
    except Exception as error:
        _log.exception("the reporter broke")
        fail(error)


async def _close(reporter: Reporter, task: asyncio.Task[None]) -> None:
    reporter.close()
    await asyncio.wait([task], timeout=STOP_SECONDS)
    task.cancel()
