"""Why a request is not served: a gRPC status, and a message that says what to do."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from grpc import StatusCode

RETRY_PUSHBACK: Final = "grpc-retry-pushback-ms"
"""The key in trailing metadata that gRPC itself defines for it."""


class RefusedError(Exception):
    """Ends an RPC with `code` and `message`.

    `retry_seconds`, where it is known: the caller may try again after so long.
    """

    def __init__(self, code: StatusCode, message: str, retry_seconds: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_seconds = retry_seconds

    @property
    def trailers(self) -> tuple[tuple[str, str], ...]:
        """Trailing metadata of the RPC: when to retry, as gRPC clients know it."""
        if self.retry_seconds is None:
            return ()
        return ((RETRY_PUSHBACK, str(math.ceil(self.retry_seconds * 1000))),)


@contextmanager
def invalid_argument() -> Iterator[None]:
    """Makes a ValueError about the request an INVALID_ARGUMENT."""
    try:
        yield
    except ValueError as error:
        raise RefusedError(StatusCode.INVALID_ARGUMENT, str(error)) from error
