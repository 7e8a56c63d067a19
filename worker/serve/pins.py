"""Pins on the wire: a prompt is computed as far as it is not cached, then kept.

Codes: as in `worker.serve.prefill`; INVALID_ARGUMENT for a prompt that fills no block too;
RESOURCE_EXHAUSTED when pins hold all that they may.
"""

from collections.abc import Callable

from grpc import StatusCode
from radixgate.limits import check_ttl
from radixgate.refused import RefusedError, invalid_argument
from radixgate.v1.generate_pb2 import GenerateRequest, Pinned
from radixgate.v1.worker_pb2 import PinPrompt, Unpinned

from worker.engine.core import EngineCore
from worker.engine.engine import Answer
from worker.kv.pins import PinRefusedError
from worker.serve.prefill import Prefill


class Pinner:
    """Args: `worker`, its id; `prefill` computes; `block_size` of its KV memory."""

    def __init__(self, worker: str, prefill: Prefill, block_size: int) -> None:
        self._worker = worker
        self._prefill = prefill
        self._block_size = block_size

    async def pin(self, message: PinPrompt, seconds: float) -> Pinned:
        """Keep a prompt; `seconds` are left to compute it.

        Raises:
            RefusedError: see the module.
        """
        with invalid_argument():
            check_ttl(message.ttl_seconds)
        request = self._prefill.admit(message.prompt)
        whole = request.prompt_tokens // self._block_size * self._block_size
        if not whole:
            raise RefusedError(
                StatusCode.INVALID_ARGUMENT,
                f"prompt: {request.prompt_tokens} tokens fill no block of {self._block_size}, and "
                "whole blocks are kept; pin a longer prompt",
            )

        def keep(core: EngineCore) -> int:
            return core.pin(core.tokens(request), message.ttl_seconds)

        # NOTE: first, so that what may not be pinned is not computed, and what is there stays.
        pinned = await self._ask(keep)
        if pinned < whole:
            await self._prefill.compute(request, seconds)
            pinned = await self._ask(keep)
        return Pinned(
            worker=self._worker, prompt_tokens=request.prompt_tokens, pinned_tokens=pinned
        )

    async def unpin(self, prompt: GenerateRequest) -> Unpinned:
        """Give up the pin of a prompt.

        Raises:
            RefusedError: see the module; NOT_FOUND, there is none.
        """
        request = self._prefill.admit(prompt)
        if not await self._ask(lambda core: core.unpin(core.tokens(request))):
            raise RefusedError(
                StatusCode.NOT_FOUND,
                f"worker {self._worker!r} has no pin of this prompt of {request.prompt_tokens} "
                f"tokens for tenant {request.tenant!r}; it has ended, was given up for a request "
                "that needed all memory, or was made for other tokens",
            )
        return Unpinned()

    async def _ask(self, question: Callable[[EngineCore], Answer]) -> Answer:
        try:
            return await self._prefill.ask(question)
        except PinRefusedError as error:
            raise RefusedError(StatusCode.RESOURCE_EXHAUSTED, str(error)) from error
