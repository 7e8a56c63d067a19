"""The KvSync service: takes the reports of workers, refuses those that must not be in a pool.

Status codes: INVALID_ARGUMENT for reports that break the protocol, FAILED_PRECONDITION for a worker
that must change before it tries again (parity, stale epoch), UNAVAILABLE when the gateway cannot
call the worker back or is going away.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias, cast

import grpc.aio
from radixgate.v1.sync_pb2 import Ack, Report
from radixgate.v1.sync_pb2_grpc import KvSyncServicer

from gateway.summary.events import Registration
from gateway.summary.pool import Pools
from gateway.summary.session import Session
from gateway.summary.sink import RegistrationError

logger = logging.getLogger(__name__)

Admit = Callable[[Registration], Awaitable[None]]
"""Checks a worker before it is registered. Raises RegistrationError to refuse it, ConnectionError
when it cannot be called at its address."""

Drains = Callable[[Registration, bytes], None]
"""Told of a worker that leaves, again with each report, and its key for `Worker.Hottest`."""

SyncContext: TypeAlias = grpc.aio.ServicerContext[Report, Ack]


class KvSyncService(KvSyncServicer):
    """Args: `pools` to report to; `admit` is asked before a worker is registered; `drains` hears
    which of those that report here leave.
    """

    def __init__(self, pools: Pools, admit: Admit, drains: Drains = lambda *_: None) -> None:
        self._pools = pools
        self._admit = admit
        self._drains = drains
        self._streams: set[asyncio.Task[None]] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._closing = False

    async def Sync(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[Report], context: SyncContext
    ) -> None:
        """Serve one stream of one worker; the first report is its Hello."""
        stream = cast(asyncio.Task[None], asyncio.current_task())
        self._streams.add(stream)
        try:
            await self._serve(request_iterator, context)
        except RegistrationError as error:
            logger.warning("KvSync with %s refused: %s", context.peer(), error)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except ValueError as error:
            logger.warning("KvSync with %s broken off: %s", context.peer(), error)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except ConnectionError as error:
            logger.warning("KvSync with %s refused: %s", context.peer(), error)
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except asyncio.CancelledError:
            if not self._closing:
                raise
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this gateway is shutting down")
        finally:
            self._streams.discard(stream)

    async def close(self) -> None:
        """End all streams, which never end by themselves: the workers turn to another gateway."""
        self._closing = True
        for stream in self._streams:
            stream.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)
        await asyncio.gather(*self._leaving)

    async def _serve(self, reports: AsyncIterator[Report], context: SyncContext) -> None:
        first = await anext(reports, Report())
        if not first.HasField("hello"):
            raise ValueError(
                f"the first report of a stream must be a Hello, got {first.WhichOneof('report')}"
            )
        registration = Registration.of(first.hello)
        await self._admit(registration)
        session = Session(first.hello, self._pools.get(registration.model), self._pools.lease_ms)
        try:
            await context.write(await session.open())
            async for report in reports:
                ack = await session.take(report)
                if ack is not None:
                    await context.write(ack)
                    if ack.draining:
                        self._drains(registration, first.hello.hottest_key)
        finally:
            # NOTE: in a task of its own, since the end of the stream cancels this one at any time.
            leaving = asyncio.create_task(_leave(session))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)


async def _leave(session: Session) -> None:
    # NOTE: there is nothing to leave when another life has taken the worker's place.
    with suppress(RegistrationError):
        await session.close()
