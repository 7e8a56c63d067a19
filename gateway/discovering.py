"""What a gateway in Kubernetes does beside serving: follow the workers' pods, and price them."""

import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial

from gateway.config import ConfigError, GatewayConfig
from gateway.fleet.channels import Channels
from gateway.fleet.discovery.discovered import Discovered
from gateway.fleet.fleet import Fleet
from gateway.fleet.upkeep import list_pods
from gateway.scale.leader import Leader, leader_key
from gateway.summary.redis import connect


async def discover(
    config: GatewayConfig,
    fleet: Fleet,
    channels: Channels,
    *,
    redis_url: str,
    values: Callable[[str], Mapping[str, float]],
    stack: AsyncExitStack,
) -> tuple[Discovered | None, list[Callable[[], Awaitable[None]]]]:
    """What is found of pods, if they are to be found, and what has to run for that.

    Raises:
        ConfigError: there is no Kubernetes to ask.
    """
    if config.discover is None:
        if config.deletion_costs:
            raise ConfigError("--deletion-costs needs --discover, which finds the workers' pods")
        return None, []
    # NOTE: a library that takes half a second to import, and is not installed everywhere.
    from gateway.fleet.discovery.cluster import Cluster, ClusterError
    from gateway.fleet.discovery.kubernetes import Discovery
    from gateway.scale.cost_writer import CostWriter

    try:
        cluster = await Cluster.find(config.namespace)
    except ClusterError as error:
        raise ConfigError(str(error)) from error
    clock = time.monotonic
    discovered = Discovered(config.discover, clock)
    discovery = Discovery(
        cluster,
        discovered,
        config.discovery_seconds,
        partial(list_pods, fleet, channels),
        clock=clock,
        chance=random.random,
    )
    if not config.deletion_costs:
        return discovered, [discovery.run]
    redis = connect(redis_url)
    stack.push_async_callback(redis.aclose)
    key = leader_key(cluster.namespace, discovered.selector)
    leader = Leader(redis, key, clock)
    stack.push_async_callback(leader.close)
    writer = CostWriter(cluster, leader, fleet, discovered=discovered, values=values)
    return discovered, [discovery.run, leader.run, writer.run]
