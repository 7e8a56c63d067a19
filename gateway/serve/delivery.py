"""What one client gets, whichever workers serve it one after the other: one stream without a seam.

Token messages pass through as the bytes that a worker sent. Started waits for the message after it,
so that a client never hears of a worker that then fails before its first tokens, and comes once.
"""

from collections.abc import Awaitable, Callable

from radixgate.v1.generate_pb2 import GenerateRequest, GenerateResponse, Started

from gateway.serve.continuation import Beginning, Continuation
from gateway.serve.forward import FINISHED, STARTED, TOKENS

Write = Callable[[bytes], Awaitable[None]]
"""Takes a serialized GenerateResponse."""


class Delivery:
    """Args: `request`, as its first worker gets it; `write` to the client; `clock`, in seconds.

    Attributes:
        migrations: how often another worker has gone on in mid-stream.
    """

    def __init__(self, request: GenerateRequest, write: Write, clock: Callable[[], float]) -> None:
        self.migrations = 0
        self._continuation = Continuation(request)
        self._write = write
        self._clock = clock
        self._asked_at = self._scheduled_at = clock()
        self._beginning: Beginning | None = None
        self._held = b""
        self._new = True
        self._predicted_tokens = 0
        self._begun: Callable[[Started], None]

    @property
    def begun(self) -> bool:
        """Whether the client has got anything."""
        return self._beginning is not None

    @property
    def progress(self) -> int:
        """Grows with every message that the client gets."""
        return self._continuation.progress

    @property
    def output(self) -> bytes:
        """As `Continuation.output`."""
        return self._continuation.output

    def rest(self) -> GenerateRequest:
        """What the next worker is to be asked for."""
        return self._continuation.request()

    def attempt(self, predicted_tokens: int, begun: Callable[[Started], None]) -> None:
        """Another worker is asked.

        Args:
            predicted_tokens: of its prompt, that it is believed to hold.
            begun: called once, with what it had cached, when its first tokens are there.
        """
        self._held, self._new = b"", True
        self._predicted_tokens = predicted_tokens
        self._begun = begun

    async def receive(self, message: bytes) -> None:
        """Pass on what the worker sent."""
        event = message[:1]
        if event == STARTED:
            self._held, self._scheduled_at = message, self._clock()
            return
        if self._new:
            self._new = False
            await self._begin()
        if event == TOKENS:
            self._continuation.passed(message)
        elif event == FINISHED and self.migrations:
            assert self._beginning
            message = self._continuation.finished(
                message, self._beginning, self._clock(), self.migrations
            )
        await self._write(message)

    async def _begin(self) -> None:
        """The first message of an attempt besides Started is here."""
        response = GenerateResponse.FromString(self._held)
        started = response.started
        started.predicted_tokens = min(self._predicted_tokens, started.prompt_tokens)
        if self._held:
            self._begun(started)
        if self._beginning:
            self.migrations += 1
            return
        self._beginning = Beginning(
            self._asked_at, self._scheduled_at, self._clock(), started.cached_tokens
        )
        if self._held:
            await self._write(response.SerializeToString())
