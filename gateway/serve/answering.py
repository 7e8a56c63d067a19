"""Ends each RPC with the status that what happened in it calls for, and counts it."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import grpc.aio
from grpc import StatusCode
from radixgate.calls import Calls
from radixgate.refused import RefusedError

from gateway.serve.metrics import Metrics

logger = logging.getLogger(__name__)

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class Answering:
    """Args: the `calls` under way; `metrics`, which count them."""

    def __init__(self, calls: Calls, metrics: Metrics) -> None:
        self._calls = calls
        self._metrics = metrics

    @asynccontextmanager
    async def answer(self, method: str, context: Context) -> AsyncIterator[None]:
        """Serve a call of `method` inside."""
        code = StatusCode.OK
        try:
            with self._calls.call():
                yield
        except RefusedError as refusal:
            code = refusal.code
            await context.abort(code, refusal.message, refusal.trailers)
        except asyncio.CancelledError:
            remaining: float | None = context.time_remaining()
            late = remaining is not None and remaining <= 0
            code = StatusCode.DEADLINE_EXCEEDED if late else StatusCode.CANCELLED
            raise
        except Exception as error:
            logger.exception("%s failed", method)
            code = StatusCode.INTERNAL
            await context.abort(code, f"the gateway failed: {type(error).__name__}: {error}")
        finally:
            self._metrics.requests.labels(method, code.name).inc()
