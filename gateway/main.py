"""Runs a gateway from its first request to SIGTERM."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from radixgate.serving import StopSignals

from gateway.assembly import assemble
from gateway.config import ConfigError, GatewayConfig
from gateway.running import Gateway
from gateway.serve.server import PortTakenError
from gateway.summary.redis import RedisSetupError

logger = logging.getLogger(__name__)


def log_ready(running: Gateway) -> None:
    """Say in the log that a gateway serves."""
    logger.info("gateway ready on %s", running.address)


def run_gateway(config: GatewayConfig, ready: Callable[[Gateway], None] = log_ready) -> None:
    """Serve until SIGTERM or SIGINT; a second signal stops at once.

    Args:
        config: how.
        ready: called once it serves.

    Raises:
        ConfigError: the port is taken, or there is no Redis to use.
        SystemExit: 128 + n, a second signal n stopped it.
    """
    asyncio.run(_run(config, ready))


async def _run(config: GatewayConfig, ready: Callable[[Gateway], None]) -> None:
    signals = StopSignals()
    async with gateway(config) as running:
        # NOTE: a full collection looks at all that there is, and no request is served meanwhile.
        # What there is now, most of it modules, stays anyway.
        gc.collect()
        gc.freeze()
        ready(running)
        await asyncio.wait(
            {asyncio.create_task(signals.wait()), running.background},
            return_when=asyncio.FIRST_COMPLETED,
        )
        if running.background.done():
            running.background.result()
        logger.info("gateway is stopping")
        await signals.unless_repeated(running.stop(config.notice_seconds, config.grace_seconds))


@asynccontextmanager
async def gateway(config: GatewayConfig) -> AsyncIterator[Gateway]:
    """A gateway that serves as long as the context lasts.

    Raises:
        ConfigError: the port is taken, or there is no Redis to use.
    """
    try:
        async with AsyncExitStack() as stack:
            yield await assemble(config, stack)
    except (PortTakenError, RedisSetupError) as error:
        raise ConfigError(str(error)) from error
