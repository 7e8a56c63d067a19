"""Why a request is not served: a gRPC status, and a message that says what to do."""

from collections.abc import Iterator
from contextlib import contextmanager

from grpc import StatusCode


class RefusedError(Exception):
    """Ends an RPC with `code` and `message`."""

    def __init__(self, code: StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@contextmanager
def invalid_argument() -> Iterator[None]:
    """Makes a ValueError about the request an INVALID_ARGUMENT."""
    try:
        yield
    except ValueError as error:
        raise RefusedError(StatusCode.INVALID_ARGUMENT, str(error)) from error
