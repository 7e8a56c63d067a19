"""When a worker dies in mid-stream: the request for the rest, and an end that is of the whole.

Pure. What has passed is kept as the bytes that it came in, and only parsed when a worker fails.
"""

from typing import NamedTuple

from radixgate.prefix import pack_tokens
from radixgate.v1.generate_pb2 import GenerateRequest, GenerateResponse


class Beginning(NamedTuple):
    """How an answer began, with times in seconds of one clock.

    Args:
        asked_at: the gateway began to serve the request.
        scheduled_at: its first worker said Started.
        first_token_at: its first tokens came.
        cached_tokens: of the prompt, as in Started.
    """

    asked_at: float
    scheduled_at: float
    first_token_at: float
    cached_tokens: int


class Continuation:
    """Of one request.

    Args: `request`, as its first worker gets it: with a packed prompt and a seed.
    """

    def __init__(self, request: GenerateRequest) -> None:
        self._request = request
        self._passed = bytearray()

    @property
    def progress(self) -> int:
        """Grows with every message that passes."""
        return len(self._passed)

    @property
    def output(self) -> bytes:
        """The Tokens messages that passed, one after the other."""
        return bytes(self._passed)

    def passed(self, message: bytes) -> None:
        """The client gets this Tokens message."""
        self._passed += message

    def request(self) -> GenerateRequest:
        """The request for what has not passed yet."""
        # NOTE: messages in a row parse as one, in which repeated fields are joined.
        output = GenerateResponse.FromString(self.output).tokens.ids
        rest = GenerateRequest()
        rest.CopyFrom(self._request)
        rest.packed += pack_tokens(output)
        rest.resumed_tokens = len(output)
        return rest

    def finished(self, message: bytes, beginning: Beginning, now: float, migrations: int) -> bytes:
        """The last worker's Finished `message`, as it is true of the whole request."""
        response = GenerateResponse.FromString(message)
        finished = response.finished
        finished.cached_tokens = beginning.cached_tokens
        finished.ClearField("misses")
        finished.queue_seconds = beginning.scheduled_at - beginning.asked_at
        finished.ttft_seconds = beginning.first_token_at - beginning.asked_at
        finished.total_seconds = now - beginning.asked_at
        finished.migrations = migrations
        return response.SerializeToString()
