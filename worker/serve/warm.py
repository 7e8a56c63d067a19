"""Computes prompts that other workers leave behind, while there is nothing else to prefill.

A prompt is computed piece by piece, each as a request of the lowest priority that is not made
before the prompts of all clients are computed. So a client that comes meanwhile waits for one piece
at most, and what is computed stays, however it ends.

Codes: as in `worker.serve.prefill`; DEADLINE_EXCEEDED too when clients left no time; UNAVAILABLE
when the worker leaves; RESOURCE_EXHAUSTED when a piece is evicted before the next one is computed.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from grpc import StatusCode
from radixgate.prefix import TOKEN_BYTES
from radixgate.refused import RefusedError
from radixgate.v1.generate_pb2 import GenerateRequest
from radixgate.v1.worker_pb2 import Warmed

from worker.engine.request import Request
from worker.engine.stats import EngineLoad
from worker.serve.prefill import Prefill

PIECE_TOKENS: Final = 256
LOWEST_PRIORITY: Final = -(2**31)
LOOK_SECONDS: Final = 0.01
"""How often a busy engine is looked at."""


class Warmer:
    """One prompt after the other, in the order of their coming.

    Args:
        worker: its id.
        prefill: computes.
        block_size: of its KV memory.
        leaving: whether the worker leaves.
    """

    def __init__(
        self, worker: str, prefill: Prefill, block_size: int, leaving: Callable[[], bool]
    ) -> None:
        self._worker = worker
        self._prefill = prefill
        self._block_size = block_size
        self._leaving = leaving
        self._turn = asyncio.Lock()

    async def warm(self, prompt: GenerateRequest, seconds: float) -> Warmed:
        """Compute what is not cached of a prompt, within so many seconds.

        Raises:
            RefusedError: see the module.
        """
        request = replace(self._prefill.admit(prompt), priority=LOWEST_PRIORITY)
        try:
            async with asyncio.timeout(seconds), self._turn:
                return Warmed(computed_tokens=await self._compute(request))
        except TimeoutError as error:
            raise RefusedError(
                StatusCode.DEADLINE_EXCEEDED,
                f"worker {self._worker} had no time for a prompt of {request.prompt_tokens} tokens",
            ) from error

    async def _compute(self, request: Request) -> int:
        """Piece by piece; how many tokens that were."""
        whole = request.prompt_tokens // self._block_size * self._block_size
        computed = reached = 0
        while (cached := await self._cached(request)) < whole:
            if cached < reached:
                raise RefusedError(
                    StatusCode.RESOURCE_EXHAUSTED,
                    f"worker {self._worker} has no KV memory for a prompt of "
                    f"{request.prompt_tokens} tokens: {reached - cached} were evicted at once",
                )
            await self._idle()
            reached = min(cached + PIECE_TOKENS, whole)
            piece = replace(request, prompt=request.prompt[: reached * TOKEN_BYTES])
            await self._prefill.compute(piece)
            computed += reached - cached
        return computed

    async def _cached(self, request: Request) -> int:
        cached = await self._prefill.ask(lambda core: core.cached(request))
        return min(cached, request.prompt_tokens)

    async def _idle(self) -> None:
        """Return when no client's prompt waits or is computed."""
        while _prefills(self._prefill.load):
            self._check_stays()
            await asyncio.sleep(LOOK_SECONDS)
        self._check_stays()

    def _check_stays(self) -> None:
        if self._leaving():
            raise RefusedError(
                StatusCode.UNAVAILABLE, f"worker {self._worker} is draining; ask another"
            )


def _prefills(load: EngineLoad) -> bool:
    """Whether anything is to be computed but the next token of each running sequence."""
    return (
        load.waiting > 0 or load.running >= load.max_running or load.backlog_tokens > load.running
    )
