"""Puts a gateway together.

Nothing else in the gateway makes its own parts: this module does, in the order in which they need
each other, and takes them down in the opposite one.
"""

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

from prometheus_client import start_http_server
from radixgate.calls import Calls
from radixgate.v1.sync_pb2 import DESCRIPTOR as SYNC
from radixgate.v1.sync_pb2_grpc import add_KvSyncServicer_to_server

from gateway.config import ConfigError, GatewayConfig
from gateway.discovering import discover
from gateway.fleet.admission import Admission
from gateway.fleet.channels import Channels
from gateway.fleet.fleet import Fleet
from gateway.fleet.upkeep import keep_up
from gateway.route.breaker import Breakers
from gateway.route.record import Records
from gateway.route.room import Occupied, Room, pool_room
from gateway.route.routers import Routers
from gateway.route.weights import parse_weights
from gateway.running import Gateway
from gateway.scale.demand import Demands
from gateway.scale.sharing import Sharing
from gateway.scale.window import Spans
from gateway.serve.choose import Chooser
from gateway.serve.collector import StateCollector
from gateway.serve.dispatch import Dispatcher
from gateway.serve.lookaside import Lookaside
from gateway.serve.metrics import Metrics
from gateway.serve.models import Models, parse_aliases
from gateway.serve.outcomes import Outcomes
from gateway.serve.pins import Pins
from gateway.serve.prepare import Preparer
from gateway.serve.queue import Pool, QueueConfig
from gateway.serve.queues import Queues
from gateway.serve.replan import Replanner
from gateway.serve.request_log import RequestLog
from gateway.serve.scaler import SCALER_NAME, ScalerService
from gateway.serve.server import PortTakenError, Server
from gateway.serve.service import SERVICE_NAME, GatewayService
from gateway.summary.events import EventObserver
from gateway.summary.outbox import Outboxes
from gateway.summary.pool import Pools
from gateway.summary.redis import Patience, connect, embedded_server
from gateway.summary.sync import KvSyncService
from gateway.text.codecs import Codecs
from gateway.text.goldens import recompute_text

logger = logging.getLogger(__name__)

REDIS_HEALTH: Final = "redis"
HEALTH_SECONDS: Final = 0.2
TEXT_THREADS: Final = 4


async def assemble(config: GatewayConfig, stack: AsyncExitStack) -> Gateway:
    """A gateway that serves, until `stack` is closed.

    Raises:
        ConfigError: the options are wrong.
        PortTakenError: the port is taken.
        RedisSetupError: there is no Redis to use.
    """
    clock = time.monotonic
    queue_config = _queue_config(config)
    aliases = _aliases(config)
    redis_url = (
        await stack.enter_async_context(embedded_server())
        if config.redis_url is None
        else config.redis_url
    )

    fleet = Fleet(config.lease_ms / 1000, clock)
    channels = Channels()
    stack.push_async_callback(channels.close)
    name = secrets.token_hex(8)
    outboxes = Outboxes(name)
    routers = Routers(outboxes.of)
    admission = Admission(fleet, channels, recompute_text)
    stack.push_async_callback(admission.close)
    metrics = Metrics()
    breakers = Breakers(random.random)
    chooser = Chooser(fleet, routers.of, breakers, metrics, clock)

    def room(model: str) -> Room | None:
        unreported = routers.of(model).unreported
        workers = breakers.allowed(fleet.candidates(model), clock())
        return pool_room([Occupied(worker.pressure, unreported(worker.id)) for worker in workers])

    models = Models(fleet, lambda: [pool.model for pool in pools], aliases)
    demands = Demands(
        name,
        fleet,
        size_of=lambda model: sum(not worker.closed for worker in fleet.workers(model)),
        waiting_of=lambda model: queues.waiting_for(model),  # noqa: PLW0108 (queues come after)
        clock=clock,
        epoch=time.time() - clock(),
        spans=Spans(config.demand_window),
    )
    queues = Queues(
        queue_config,
        models,
        Pool(room, chooser.estimates),
        metrics=metrics,
        tally_of=demands.tally,
        clock=clock,
    )
    outcomes = Outcomes(
        Records(), fleet, routers.of, metrics=metrics, tally_of=demands.tally, clock=clock
    )
    observers: list[EventObserver] = [fleet, routers, admission, queues, outcomes, metrics]
    lookaside = Lookaside(
        name,
        fleet=fleet,
        chooser=chooser,
        router_of=routers.of,
        queues=queues,
        breakers=breakers,
        outcomes=outcomes,
        metrics=metrics,
        find_pool=lambda model: pools.find(model),  # noqa: PLW0108 (pools come after)
        clock=clock,
    )
    pools = Pools(
        redis_url,
        config.lease_ms,
        listener_for=routers.of,
        outbox_of=outboxes.of,
        finished=lookaside.heard,
        observers=observers,
    )
    stack.push_async_callback(pools.close)
    sharing = _sharing(redis_url, config.lease_ms / 1000, demands, stack)

    discovered, discovering = await discover(
        config, fleet, channels, redis_url=redis_url, values=demands.values, stack=stack
    )
    codecs = Codecs(stack.enter_context(ThreadPoolExecutor(TEXT_THREADS, "text")))
    metrics.registry.register(
        StateCollector(
            fleet=fleet,
            pools=pools,
            queues=queues,
            breakers=breakers,
            outcomes=outcomes,
            demands=demands,
            discovered=discovered,
            clock=clock,
        )
    )
    dispatcher = Dispatcher(
        chooser,
        routers.of,
        channels,
        breakers=breakers,
        outcomes=outcomes,
        metrics=metrics,
        clock=clock,
        hedge=config.hedge,
        log=_request_log(config, metrics, stack, clock),
    )
    calls = Calls("this gateway")
    service = GatewayService(
        pools=pools,
        fleet=fleet,
        models=models,
        preparer=Preparer(codecs),
        queues=queues,
        chooser=chooser,
        dispatcher=dispatcher,
        lookaside=lookaside,
        pins=Pins(fleet, chooser, channels),
        calls=calls,
        metrics=metrics,
        discovered=discovered,
        clock=clock,
    )
    replanner = Replanner(fleet, chooser, routers.of, channels, metrics=metrics, clock=clock)
    stack.push_async_callback(replanner.close)
    sync = KvSyncService(pools, admission.admit, replanner.drains)
    sync_name = SYNC.services_by_name["KvSync"].full_name
    scaler = ScalerService(demands, models, pools.knows, calls=calls, metrics=metrics)
    server = Server([SERVICE_NAME, sync_name, SCALER_NAME], share_port=config.share_port)
    server.grpc.add_generic_rpc_handlers([service.handlers(), scaler.handlers()])
    add_KvSyncServicer_to_server(sync, server.grpc)

    metrics_port = _serve_metrics(config, metrics, stack)
    port = await server.start(config.host, config.port)
    background = asyncio.gather(
        pools.run(),
        keep_up(fleet, pools, channels),
        outcomes.run(pools),
        sharing.run(lambda: [pool.model for pool in pools]),
        _report_redis(server, pools),
        *(run() for run in discovering),
    )
    stack.push_async_callback(_cancel, background)
    stack.push_async_callback(server.stop, 0.0)
    stack.push_async_callback(sync.close)
    stack.push_async_callback(calls.end)
    return Gateway(f"{config.host}:{port}", server, calls, sync, metrics_port, background)


def _queue_config(config: GatewayConfig) -> QueueConfig:
    try:
        weights = parse_weights(config.tenant_weights)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return QueueConfig(config.queue_limit, config.queue_seconds, weights)


def _aliases(config: GatewayConfig) -> dict[str, str]:
    try:
        return parse_aliases(config.aliases)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _request_log(
    config: GatewayConfig, metrics: Metrics, stack: AsyncExitStack, clock: Callable[[], float]
) -> RequestLog | None:
    """The log, if there is to be one."""
    if config.request_log is None:
        return None
    try:
        log = RequestLog(config.request_log, metrics.request_log_missing, clock)
    except OSError as error:
        why = error.strerror or error
        raise ConfigError(f"--request-log {config.request_log} cannot be opened: {why}") from error
    stack.push_async_callback(asyncio.to_thread, log.close)
    return log


def _serve_metrics(config: GatewayConfig, metrics: Metrics, stack: AsyncExitStack) -> int | None:
    """The port, if there is to be one."""
    if config.metrics_port is None:
        return None
    try:
        http, _ = start_http_server(config.metrics_port, config.host, metrics.registry)
    except OSError as error:
        where = f"{config.host}:{config.metrics_port}"
        raise PortTakenError(f"cannot serve metrics on {where}: {error}") from error
    stack.callback(http.server_close)
    stack.push_async_callback(asyncio.to_thread, http.shutdown)
    return http.server_port


def _sharing(redis_url: str, lease: float, demands: Demands, stack: AsyncExitStack) -> Sharing:
    redis = connect(redis_url, Patience.within(lease))
    stack.push_async_callback(redis.aclose)
    return Sharing(redis, demands)


async def _cancel(background: asyncio.Future[Any]) -> None:
    background.cancel()
    with suppress(asyncio.CancelledError):
        await background


async def _report_redis(server: Server, pools: Pools) -> None:
    """Keep health of the service "redis" current, until cancelled."""
    was_healthy = True
    while True:
        healthy = not pools.problem
        if healthy != was_healthy:
            logger.warning(
                "Redis can be used again"
                if healthy
                else f"Redis cannot be used, routing goes on without it: {pools.problem}"
            )
        await server.report(REDIS_HEALTH, healthy=healthy)
        was_healthy = healthy
        await asyncio.sleep(HEALTH_SECONDS)
