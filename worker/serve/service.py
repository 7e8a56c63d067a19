"""The `Worker` service: Describe, Generate, Pin, Unpin, Warm, Hottest, Drain, Inventory.

Whatever ends a stream early, a client that went away, a deadline or an error, everything that the
request held in the engine is given back at once.
"""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, TypeAlias

import grpc
import grpc.aio
from radixgate.refused import RefusedError
from radixgate.v1.generate_pb2 import GenerateRequest, GenerateResponse, Pinned
from radixgate.v1.sync_pb2 import Snapshot
from radixgate.v1.worker_pb2 import (
    DescribeRequest,
    DrainRequest,
    DrainResponse,
    HottestRequest,
    InventoryRequest,
    ModelCard,
    PinPrompt,
    Unpinned,
    UnpinPrompt,
    Warmed,
    WarmPrompt,
)
from radixgate.v1.worker_pb2_grpc import WorkerServicer

from worker.engine.engine import Engine
from worker.engine.events import End, Event, Expired, Failed
from worker.engine.output import OutputText
from worker.engine.request import Request
from worker.kv.events import KvEvents
from worker.report import snapshots
from worker.serve.admission import Served
from worker.serve.card import CardMaker
from worker.serve.drain import Drain
from worker.serve.heat import Heat
from worker.serve.messages import messages
from worker.serve.pins import Pinner
from worker.serve.resume import Resumer, ended
from worker.serve.warm import Warmer

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class WorkerService(WorkerServicer):
    """Args: `worker`, its id; `served`, what it takes; `cards`, its description; the `engine`;
    `events`, the ledger of its KV; `pinner`, which keeps prompts; `warmer`, which computes them for
    later; `heat`, what was wanted lately; `resumer`, which takes over; `drain`, how it leaves.
    """

    def __init__(
        self,
        worker: str,
        served: Served,
        cards: CardMaker,
        *,
        engine: Engine,
        events: KvEvents,
        pinner: Pinner,
        warmer: Warmer,
        heat: Heat,
        resumer: Resumer,
        drain: Drain,
    ) -> None:
        self._worker = worker
        self._served = served
        self._cards = cards
        self._engine = engine
        self._events = events
        self._pinner = pinner
        self._warmer = warmer
        self._heat = heat
        self._resumer = resumer
        self._drain = drain

    async def Describe(  # noqa: N802
        self,
        request: DescribeRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> ModelCard:
        """All a gateway needs to tokenize for this worker and to name its prefixes."""
        return self._cards.card()

    async def Generate(  # type: ignore[override]  # noqa: N802  # the stub knows only generators
        self, request: GenerateRequest, context: Context
    ) -> None:
        """Serve one generation.

        Codes: as in `worker.serve.admission`; UNAVAILABLE when it leaves, before or in the midst
        of it; DEADLINE_EXCEEDED when the caller's deadline passed; INTERNAL when the engine failed.
        """
        async with self._serving(self._drain.request(), context):
            asked = self._served.admit(request)
            text = await self._resumer.resume(asked) if asked.resumed else None
            if text and (end := ended(asked, text)):
                await context.write(end)
            else:
                await self._stream(asked, text, context)

    async def Pin(self, request: PinPrompt, context: Context) -> Pinned:  # noqa: N802
        """Keep the KV of a prompt. Codes: as in `worker.serve.pins`, and as `Generate`."""
        async with self._serving(self._drain.request(), context):
            return await self._pinner.pin(request, _seconds(context))

    async def Unpin(self, request: UnpinPrompt, context: Context) -> Unpinned:  # noqa: N802
        """Give up a pin. Codes: as in `worker.serve.pins`, and as `Generate`."""
        async with self._serving(self._drain.request(), context):
            return await self._pinner.unpin(request.prompt)

    async def Warm(self, request: WarmPrompt, context: Context) -> Warmed:  # noqa: N802
        """Compute a prompt when there is time. Codes: as in `worker.serve.warm`, and UNAVAILABLE
        when it leaves.
        """
        async with self._serving(self._drain.request(), context):
            return await self._warmer.warm(request.prompt, _seconds(context))

    async def Hottest(  # type: ignore[override]  # noqa: N802  # the stub knows only generators
        self, request: HottestRequest, context: Context
    ) -> None:
        """What was wanted most often lately. Codes: as in `worker.serve.heat`."""
        async with self._serving(self._drain.call(), context):
            for prefix in await self._heat.hottest(request.max_tokens, request.key):
                await context.write(prefix)

    async def Drain(self, request: DrainRequest, context: Context) -> DrainResponse:  # noqa: ARG002, N802
        """Take no more requests; answer when the last one has ended or the grace is over."""
        return DrainResponse(unfinished=await self._drain.run(request.grace_seconds))

    async def Inventory(  # noqa: N802
        self,
        request: InventoryRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> AsyncIterator[Snapshot]:
        """What the KV cache holds now, whether it was reported yet or not."""
        for snapshot in snapshots(self._events.held()):
            yield snapshot

    @asynccontextmanager
    async def _serving(
        self, call: AbstractContextManager[None], context: Context
    ) -> AsyncIterator[None]:
        """What draining waits for; refusals of it, or in it, end the RPC."""
        try:
            with call:
                yield
        except RefusedError as error:
            await context.abort(error.code, str(error))

    async def _stream(self, asked: Request, text: OutputText | None, context: Context) -> None:
        queue: asyncio.Queue[Event] = asyncio.Queue()
        ticket = self._engine.submit(asked, queue.put_nowait, _seconds(context), text)
        try:
            ended = False
            while not ended:
                events = [await queue.get()]
                while not queue.empty():
                    events.append(queue.get_nowait())
                ended = isinstance(events[-1], End)
                await self._write(events, asked.request_id, context)
        finally:
            self._engine.cancel(ticket)

    async def _write(self, events: list[Event], request_id: str, context: Context) -> None:
        for message in messages(events, request_id, self._worker):
            match message:
                case GenerateResponse():
                    await context.write(message)
                case Failed():
                    await context.abort(grpc.StatusCode.INTERNAL, message.message)
                case Expired():
                    await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, message.message)


def _seconds(context: Context) -> float:
    """How long the caller waits."""
    remaining: float | None = context.time_remaining()
    return math.inf if remaining is None else remaining
