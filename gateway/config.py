"""How a gateway is asked to run."""

from dataclasses import dataclass
from pathlib import Path


class ConfigError(Exception):
    """The gateway cannot start as configured; the message says what to change."""


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Args:
    host, port: where to serve gRPC; port 0 is any free one.
    share_port: let other processes listen on the port as well.
    redis_url: of the Redis that all gateways share; None starts an embedded one.
    metrics_port: where to serve Prometheus metrics; None is nowhere, 0 any free port.
    lease_ms: a worker that says nothing for so long is dropped.
    aliases: other names of models, each ALIAS=MODEL.
    hedge: ask a second worker when the first is later with its answer than 99 of 100 were.
    queue_limit: requests of one model that may wait for their turn.
    queue_seconds: that a request without a deadline waits for its turn at most.
    discover: label selector of the EndpointSlices that name the workers' pods; None asks nobody.
    namespace: of those pods; None is this gateway's own.
    discovery_seconds: within which a pod that went is known to be gone.
    request_log: file to which a line is appended for each request that was served; None is none.
    deletion_costs: while this gateway leads, write what each pod's deletion would cost.
    tenant_weights: see `gateway.route.weights.parse_weights`; none: "".
    demand_window: seconds of demand that count for scaling, 60 or more.
    notice_seconds: at the end, serve on for so long after health says NOT_SERVING.
    grace_seconds: at the end, requests that run may take so long to finish.
    """

    host: str = "127.0.0.1"
    port: int = 50051
    share_port: bool = False
    redis_url: str | None = None
    metrics_port: int | None = None
    lease_ms: int = 5_000
    aliases: tuple[str, ...] = ()
    hedge: bool = False
    queue_limit: int = 1024
    queue_seconds: float = 30.0
    tenant_weights: str = ""
    demand_window: float = 600.0
    discover: str | None = None
    namespace: str | None = None
    discovery_seconds: float = 10.0
    request_log: Path | None = None
    deletion_costs: bool = False
    notice_seconds: float = 0.0
    grace_seconds: float = 30.0
