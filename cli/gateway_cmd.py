"""`radixgate gateway`: command-line options become a `GatewayConfig`."""

from pathlib import Path
from typing import Annotated

import typer

from cli import logs, options
from cli.exits import CommandError
from cli.extras import needs

Port = Annotated[
    int, typer.Option(min=0, max=65535, help="Where to serve gRPC; 0 is any free port.")
]
Processes = Annotated[
    int,
    typer.Option(
        min=1, metavar="N", help="So many processes share the port; metrics of each on the next."
    ),
]
Lease = Annotated[
    int, typer.Option(min=1_000, metavar="MS", help="Drop a worker that says nothing for so long.")
]
Hedge = Annotated[
    bool,
    typer.Option(
        "--hedge", help="Ask a second worker when the first is later than 99 of 100 were."
    ),
]
Alias = Annotated[
    list[str] | None,
    typer.Option(metavar="ALIAS=MODEL", help="Another name for a model; may be repeated."),
]
QueueLimit = Annotated[
    int, typer.Option(min=0, metavar="REQUESTS", help="So many of one model may wait at most.")
]
QueueSeconds = Annotated[
    float,
    typer.Option(
        min=0, metavar="SECONDS", help="So long a request without a deadline waits at most."
    ),
]
TenantWeights = Annotated[
    str,
    typer.Option(
        metavar="TENANT:WEIGHT,…",
        help="How tenants share busy workers, as in acme:3,beta:1,*:1; * is each other one.",
    ),
]
DemandWindow = Annotated[
    float,
    typer.Option(
        min=60, metavar="SECONDS", help="What is asked for in so long counts for scaling."
    ),
]
Discover = Annotated[
    str | None,
    typer.Option(
        metavar="SELECTOR",
        help="Ask Kubernetes which workers there are: labels of their Services' EndpointSlices.",
    ),
]
Namespace = Annotated[
    str | None, typer.Option(metavar="NAME", help="Where they are; else where this gateway is.")
]
DeletionCosts = Annotated[
    bool,
    typer.Option(
        "--deletion-costs",
        help="Let the leading gateway tell Kubernetes which pods to delete first: the coldest.",
    ),
]
RequestLog = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Append a line for each request, for the simulator: lengths and hashes, no text.",
    ),
]
Notice = Annotated[
    float,
    typer.Option(
        min=0, metavar="SECONDS", help="Serve on for so long after SIGTERM, as NOT_SERVING."
    ),
]


def gateway(
    *,
    host: options.Host = "127.0.0.1",
    port: Port = 50051,
    processes: Processes = 1,
    redis: options.Redis = None,
    metrics_port: options.MetricsPort = None,
    lease_ms: Lease = 5_000,
    alias: Alias = None,
    hedge: Hedge = False,
    queue_limit: QueueLimit = 1024,
    queue_seconds: QueueSeconds = 30.0,
    tenant_weights: TenantWeights = "",
    demand_window: DemandWindow = 600.0,
    discover: Discover = None,
    namespace: Namespace = None,
    deletion_costs: DeletionCosts = False,
    request_log: RequestLog = None,
    notice: Notice = 0.0,
    grace: options.Grace = 30.0,
) -> None:
    """Run a gateway: it routes every request to the worker that holds most of its prompt."""
    with needs("gateway"):
        from cli.processes import run_processes
        from gateway.config import ConfigError, GatewayConfig
        from gateway.main import run_gateway
    if discover is not None:
        with needs("kubernetes"):
            import kubernetes.aio  # noqa: F401
    logs.configure()
    config = GatewayConfig(
        host=host,
        port=port,
        redis_url=redis,
        metrics_port=metrics_port,
        lease_ms=lease_ms,
        aliases=tuple(alias or ()),
        hedge=hedge,
        queue_limit=queue_limit,
        queue_seconds=queue_seconds,
        tenant_weights=tenant_weights,
        demand_window=demand_window,
        discover=discover,
        namespace=namespace,
        deletion_costs=deletion_costs,
        request_log=request_log,
        notice_seconds=notice,
        grace_seconds=grace,
    )
    try:
        if processes > 1:
            run_processes(config, processes)
        else:
            run_gateway(config)
    except ConfigError as error:
        raise CommandError(str(error)) from error
