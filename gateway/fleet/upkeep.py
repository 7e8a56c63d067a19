"""What has to be done for the fleet as time passes: drop the lost, close channels to no one."""

import asyncio
import logging
from collections.abc import Mapping

from gateway.fleet.channels import Channels
from gateway.fleet.discovery.endpoints import Endpoint
from gateway.fleet.fleet import Fleet
from gateway.summary.pool import Pools

logger = logging.getLogger(__name__)

UPKEEP_SECONDS = 0.2


async def keep_up(fleet: Fleet, pools: Pools, channels: Channels) -> None:
    """Run until cancelled."""
    while True:
        drop_expired(fleet, pools, channels)
        channels.keep(fleet.addresses())
        await asyncio.sleep(UPKEEP_SECONDS)


def drop_expired(fleet: Fleet, pools: Pools, channels: Channels) -> None:
    """Drop every worker whose lease passed while news of it could have arrived, and its calls."""
    for pool in pools:
        if pool.problem:
            fleet.freeze(pool.model)
        else:
            fleet.thaw(pool.model)
    for model, departed in fleet.expired():
        logger.warning("worker %s of %s is lost: its lease passed", departed.worker, model)
        worker = fleet.get(model, departed.worker)
        pools.get(model).take(departed)
        if worker is not None:
            channels.end_if_dead(worker.address)


def list_pods(fleet: Fleet, channels: Channels, endpoints: Mapping[str, Endpoint]) -> None:
    """Take which pods there are, by UID; who is in none any more and silent has its calls ended."""
    for worker in fleet.list_pods(endpoints):
        logger.warning("worker %s at %s: its pod is gone", worker.id, worker.address)
        channels.end_if_dead(worker.address)
