"""Prompts that are computed for their KV alone: no client waits for a token of theirs.

Codes: as in `worker.serve.admission`; DEADLINE_EXCEEDED when the caller's deadline passed; INTERNAL
when the engine failed.
"""

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace

from grpc import StatusCode
from radixgate.refused import RefusedError
from radixgate.v1.generate_pb2 import GenerateRequest, Stopping

from worker.engine.core import EngineCore
from worker.engine.engine import Answer, Engine
from worker.engine.events import End, Event, Expired, Failed
from worker.engine.request import Request
from worker.engine.stats import EngineLoad
from worker.serve.admission import Served


class Prefill:
    """Args: `served`, what the worker takes; the `engine`."""

    def __init__(self, served: Served, engine: Engine) -> None:
        self._served = served
        self._engine = engine

    @property
    def load(self) -> EngineLoad:
        """The engine's."""
        return self._engine.load

    def admit(self, prompt: GenerateRequest) -> Request:
        """The prompt as a request for as little output as there can be.

        Raises:
            RefusedError: see the module.
        """
        least = GenerateRequest()
        least.CopyFrom(prompt)
        least.stopping.CopyFrom(Stopping(max_tokens=1, ignore_eos=True))
        least.ClearField("resumed_tokens")
        # NOTE: nobody reads its token, so hit rate and TTFT would tell what no client sees.
        return replace(self._served.admit(least), counted=False)

    async def ask(self, question: Callable[[EngineCore], Answer]) -> Answer:
        """Have `question` answered between two steps.

        Raises:
            RefusedError: the engine is broken.
            PinRefusedError: as the question.
        """
        try:
            return await asyncio.wrap_future(self._engine.ask(question))
        except RuntimeError as error:
            raise RefusedError(StatusCode.INTERNAL, str(error)) from error

    async def compute(self, request: Request, seconds: float = math.inf) -> None:
        """Compute it, within so many seconds.

        Raises:
            RefusedError: see the module.
        """
        end: asyncio.Future[Event] = asyncio.get_running_loop().create_future()

        def hear(event: Event) -> None:
            if isinstance(event, End) and not end.done():
                end.set_result(event)

        ticket = self._engine.submit(request, hear, seconds)
        try:
            match await end:
                case Expired(message):
                    raise RefusedError(StatusCode.DEADLINE_EXCEEDED, message)
                case Failed(message):
                    raise RefusedError(StatusCode.INTERNAL, message)
        finally:
            self._engine.cancel(ticket)
