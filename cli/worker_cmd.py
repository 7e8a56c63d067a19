"""`radixgate worker`: command-line options become a `WorkerConfig`."""

from enum import StrEnum
from typing import Annotated

import typer

from cli import logs, options
from cli.exits import CommandError
from cli.extras import needs
from worker.kv.policy import DEFAULT_EVICTION
from worker.model.pull import locate
from worker.model.step import PullError
from worker.model.weights import WeightFormat
from worker.threads import share_cores


class Eviction(StrEnum):
    """What goes first when KV blocks are needed."""

    LRU = "lru"
    COST = "cost"


_DEFAULT_EVICTION = Eviction(DEFAULT_EVICTION)

ModelRef = Annotated[
    str,
    typer.Option("--model", metavar="REF", help="A model directory, or a model that was pulled."),
]
ModelName = Annotated[
    str | None, typer.Option(help="What clients call the model; by default its directory's name.")
]
Port = Annotated[
    int, typer.Option(min=0, max=65535, help="Where to serve gRPC; 0 is any free port.")
]
Advertise = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Where gateways reach this worker, if not there."),
]
Gateways = Annotated[
    str,
    typer.Option("--gateway", metavar="HOST:PORT,…", help="Gateways to report to, tried in turn."),
]
WorkerId = Annotated[str | None, typer.Option(help="Its name; by default its address.")]
TenantShares = Annotated[
    str,
    typer.Option(
        metavar="TENANT:MIN-MAX,…",
        help="Parts of the KV memory that tenants are guaranteed and may have: acme:0.3-0.8.",
    ),
]
PinShare = Annotated[
    float, typer.Option(min=0, max=1, help="Part of the KV memory that pins may hold.")
]
BlockSize = Annotated[int, typer.Option(min=1, metavar="TOKENS", help="Tokens of a KV block.")]
Stride = Annotated[
    int,
    typer.Option(min=1, metavar="TOKENS", help="Report prefixes at multiples of so many tokens."),
]
MaxRunning = Annotated[int, typer.Option(min=1, help="Sequences that run at once.")]
TokenBudget = Annotated[
    int, typer.Option(min=1, metavar="TOKENS", help="Tokens of one step at most.")
]
ChunkMs = Annotated[
    float,
    typer.Option(
        min=0,
        metavar="MS",
        help="By so much prompts may delay a token of those that run: small keeps tokens even.",
    ),
]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads that compute.")]


def worker(
    *,
    model: ModelRef,
    model_name: ModelName = None,
    host: options.Host = "127.0.0.1",
    port: Port = 0,
    advertise: Advertise = None,
    gateway: Gateways = "",
    worker_id: WorkerId = None,
    device: options.Device = "auto",
    weights: options.Weights = WeightFormat.FLOAT32,
    kv_format: options.KvFormat = "none",
    kv_format_layers: options.KvFormatLayers = "",
    kv_memory: options.KvMemory = 512 * 2**20,
    eviction: Eviction = _DEFAULT_EVICTION,
    tenant_shares: TenantShares = "",
    pin_share: PinShare = 0.25,
    block_size: BlockSize = 16,
    stride: Stride = 64,
    max_running: MaxRunning = 32,
    token_budget: TokenBudget = 256,
    chunk_ms: ChunkMs = 200.0,
    metrics_port: options.MetricsPort = None,
    threads: Threads = None,
    grace: options.Grace = 30.0,
) -> None:
    """Run a worker: a model with its KV cache, and reports of what that holds."""
    share_cores()
    with needs("worker"):
        from worker.main import ConfigError, WorkerConfig, run_worker
    logs.configure()
    try:
        config = WorkerConfig(
            model=locate(model),
            model_name=model_name,
            host=host,
            port=port,
            advertise=advertise,
            gateways=tuple(address.strip() for address in gateway.split(",") if address.strip()),
            worker_id=worker_id,
            device=device,
            weights=weights,
            kv_format=kv_format,
            kv_format_layers=kv_format_layers,
            kv_memory=kv_memory,
            eviction=eviction.value,
            tenant_shares=tenant_shares,
            pin_share=pin_share,
            block_size=block_size,
            stride=stride,
            max_running=max_running,
            token_budget=token_budget,
            chunk_ms=chunk_ms,
            metrics_port=metrics_port,
            threads=threads,
            grace_seconds=grace,
        )
        run_worker(config)
    except (ConfigError, PullError) as error:
        raise CommandError(str(error)) from error
