"""A gateway that serves, and how it leaves."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any, Final

from radixgate.calls import Calls

from gateway.serve.server import Server
from gateway.summary.sync import KvSyncService

logger = logging.getLogger(__name__)

REFUSE_SECONDS: Final = 0.2
"""For callers to hear from this gateway itself that it is leaving."""

FLUSH_SECONDS: Final = 1.0
"""For the status of the last calls to reach their clients."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway that serves.

    Args: `address`, host:port; `server`; `calls` of clients; `sync`, the KvSync service;
    `metrics_port`, if it has one; `background`, work that never ends unless it fails.
    """

    address: str
    server: Server
    calls: Calls
    sync: KvSyncService
    metrics_port: int | None
    background: asyncio.Future[Any]

    async def stop(self, notice: float, grace: float) -> None:
        """Tell everyone, then finish what runs or waits; times in seconds."""
        await self.server.announce_end(notice)
        # NOTE: what reaches gRPC just when it stops may be lost there, so most is refused before.
        self.calls.take_no_more()
        await asyncio.sleep(REFUSE_SECONDS)
        self.server.take_no_more()
        if unfinished := await self.calls.finish(grace):
            logger.warning("%d calls are unfinished after the grace of %g s", unfinished, grace)
        await self.calls.end()
        # NOTE: last, since without reports the workers would be lost to what still runs.
        await self.sync.close()
        await self.server.stop(FLUSH_SECONDS)
