"""Has the hottest prefixes of leaving workers computed by others, before clients ask for them.

The gateway that a leaving worker reports to does this; no other one need know. It asks the worker,
which alone knows the tokens, and then needs it no more. If either dies meanwhile, what was not
computed is computed when it is asked for. A worker that reports elsewhere then is asked again
there, and what others hold by then is passed over.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import grpc.aio
from grpc import StatusCode
from radixgate.refused import RefusedError
from radixgate.v1.generate_pb2 import GenerateRequest
from radixgate.v1.worker_pb2 import HottestRequest, WarmPrompt
from radixgate.v1.worker_pb2_grpc import WorkerStub

from gateway.fleet.channels import Channels
from gateway.fleet.fleet import Fleet
from gateway.fleet.worker import FleetWorker, Life
from gateway.route.replan import Verdict, judge, most_tokens, unfolded
from gateway.route.router import Prompt, Router
from gateway.serve.choose import Chooser
from gateway.serve.metrics import Metrics
from gateway.serve.prepare import Prepared, seed_of
from gateway.summary.events import Registration

logger = logging.getLogger(__name__)

ASK_SECONDS: Final = 5.0
REPLAN_SECONDS: Final = 30.0
LANES: Final = 4
"""Prefixes of one worker that are computed at once, at different workers if these are equal."""

REPORT_SECONDS: Final = 1.0
"""In which a worker's report says what it has computed."""

COMPUTED: Final = "computed"
FAILED: Final = "failed"
LATE: Final = "late"


@dataclass(frozen=True, slots=True)
class _Hot:
    """A prefix that so many requests are going to want."""

    prepared: Prepared
    hits: float


@dataclass(slots=True)
class _Leaving:
    """What is left behind: `deadline` on the clock, who may not get of it, what became of it."""

    life: Life
    deadline: float
    without: set[Life]
    outcomes: Counter[str] = field(default_factory=Counter)
    tokens: int = 0


class Replanner:
    """Args: `fleet`, the workers; `chooser`, which ranks them; `router_of` gives the router of a
    model's pool; `channels` to the workers; `metrics`; the fleet's `clock`.
    """

    def __init__(
        self,
        fleet: Fleet,
        chooser: Chooser,
        router_of: Callable[[str], Router],
        channels: Channels,
        *,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self._fleet = fleet
        self._chooser = chooser
        self._router_of = router_of
        self._channels = channels
        self._metrics = metrics
        self._clock = clock
        self._begun: set[Life] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def drains(self, registration: Registration, key: bytes) -> None:
        """A worker that reports here leaves; `key` opens its `Hottest`. Idempotent."""
        worker = self._fleet.get(registration.model, registration.worker)
        if worker is None or worker.registration != registration or worker.life in self._begun:
            return
        self._begun &= {each.life for each in self._fleet}
        self._begun.add(worker.life)
        task = asyncio.create_task(self._replan(worker, key), name=f"hot prefixes of {worker.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Give up what is not computed yet."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _replan(self, worker: FleetWorker, key: bytes) -> None:
        leaving = _Leaving(worker.life, self._clock() + REPLAN_SECONDS, {worker.life})
        try:
            todo = iter(await self._ask(worker, key))
        except (grpc.aio.AioRpcError, ValueError) as error:
            why = error.details() if isinstance(error, grpc.aio.AioRpcError) else error
            logger.info("worker %s leaves, and does not tell what is hot: %s", worker.id, why)
            return
        async with asyncio.TaskGroup() as group:
            for _ in range(LANES):
                group.create_task(self._work(todo, leaving))
        if leaving.outcomes:
            logger.info(
                "worker %s leaves: of its hot prefixes %s; %d tokens were computed elsewhere",
                worker.id,
                ", ".join(
                    f"{count} {outcome}" for outcome, count in sorted(leaving.outcomes.items())
                ),
                leaving.tokens,
            )

    async def _ask(self, worker: FleetWorker, key: bytes) -> list[_Hot]:
        """Its hottest prefixes, hottest first: as much as those that stay can take."""
        model, card = worker.life.model, worker.card
        staying = [each for each in self._fleet.candidates(model) if each.life != worker.life]
        if card is None or not (most := most_tokens(staying)):
            return []
        stub = WorkerStub(self._channels.get(worker.address))
        stream = stub.Hottest(HottestRequest(max_tokens=most, key=key), timeout=ASK_SECONDS)
        found = [prefix async for prefix in stream]
        whole = unfolded((prefix.extends, prefix.packed) for prefix in found)
        hot = []
        for prefix, packed in zip(found, whole, strict=True):
            prompt = Prompt(packed, card.stride, seed_of(card, prefix.scope))
            if len(prompt.boundaries):
                request = GenerateRequest(model=model, packed=packed, scope=prefix.scope)
                hot.append(_Hot(Prepared(request, prompt, model), prefix.hits))
        return hot

    async def _work(self, todo: Iterator[_Hot], leaving: _Leaving) -> None:
        for hot in todo:
            outcome = await self._place(hot, leaving)
            leaving.outcomes[outcome] += 1
            self._metrics.replanned_prefixes.labels(leaving.life.model, outcome).inc()

    async def _place(self, hot: _Hot, leaving: _Leaving) -> str:
        """Have one prefix computed where it would be served, if that pays; what became of it."""
        prepared, now = hot.prepared, self._clock()
        if now >= leaving.deadline:
            return LATE
        try:
            estimates = self._chooser.estimates(prepared, frozenset(leaving.without))
        except RefusedError:
            return FAILED
        verdict = judge(hot.hits, prepared.prompt, estimates)
        if verdict is not Verdict.WORTHWHILE:
            return str(verdict.value)
        best, router = estimates[0], self._router_of(prepared.model)
        # NOTE: not seen, since the worker has one piece of it at a time in its backlog.
        reservation, kept = router.reserve(prepared.prompt, best, now, seen=False), 0.0
        try:
            tokens = await self._warm(best.worker, prepared.request, leaving.deadline - now)
            kept = REPORT_SECONDS
        except RefusedError as refused:
            leaving.without.add(best.worker.life)
            logger.info("worker %s computes no prefix: %s", best.worker.id, refused)
            return LATE if refused.code is StatusCode.DEADLINE_EXCEEDED else FAILED
        finally:
            router.computed(reservation)
            # NOTE: what extends the prefix shall find it expected there until it is reported.
            asyncio.get_running_loop().call_later(kept, router.release, reservation)
        leaving.tokens += tokens
        self._metrics.replanned_tokens.labels(prepared.model).inc(tokens)
        return COMPUTED

    async def _warm(self, worker: FleetWorker, prompt: GenerateRequest, seconds: float) -> int:
        """Tokens that it has computed. Raises RefusedError with the code of whatever went wrong."""
        stub = WorkerStub(self._channels.get(worker.address))
        try:
            warmed = await stub.Warm(WarmPrompt(prompt=prompt), timeout=seconds)
        except grpc.aio.AioRpcError as error:
            raise RefusedError(error.code(), error.details() or "") from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # NOTE: not our task was cancelled but the call, by the closing of its channel.
            raise RefusedError(StatusCode.UNAVAILABLE, "it is gone") from error
        return warmed.computed_tokens
