"""What the client raises: one class for each thing a caller would do differently.

Every error keeps the message of the side that found it, and the gRPC status code it came with.
"""

# ruff: noqa: N818 - `except Unavailable` says it all

import grpc

from radixgate.refused import RETRY_PUSHBACK


class RadixgateError(Exception):
    """A request failed; this class itself stands for faults inside gateway or worker.

    Args: `code`, the gRPC status code of the failure; `retry_seconds`, after which the gateway
    expects to have room, if it says so.
    """

    def __init__(
        self,
        message: str,
        code: grpc.StatusCode = grpc.StatusCode.INTERNAL,
        retry_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retry_seconds = retry_seconds


class InvalidRequest(RadixgateError):
    """The request is wrong in itself: change it."""


class NotFound(RadixgateError):
    """No such model or adapter here; the message lists what there is."""


class FailedPrecondition(RadixgateError):
    """Right in itself, but no worker here can serve it: a prompt larger than its KV memory."""


class Overloaded(RadixgateError):
    """Too much is queued: retry later, after `retry_seconds` if they are there."""


class Unavailable(RadixgateError):
    """No gateway answers, it ended the call as it left, or no worker can take it now: retry."""


class DeadlineExceeded(RadixgateError):
    """The `timeout` of the call passed; what streamed before it is still valid."""


class Cancelled(RadixgateError):
    """The stream was closed before it had finished."""


_CLASSES: dict[grpc.StatusCode, type[RadixgateError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequest,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Overloaded,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    # NOTE: nobody here has cancelled it, so it was a server that is gone.
    grpc.StatusCode.CANCELLED: Unavailable,
}
# gRPC's words for no connection: for an address alone, and for each of those of a name.
_NOBODY = ("failed to connect", "connections to all backends failing")


def from_rpc_error(error: grpc.RpcError, address: str) -> RadixgateError:
    """The exception for a failed call to the gateway at `address` that was not cancelled here."""
    # NOTE: every error that a call raises is also the call, in grpc and in grpc.aio alike.
    assert isinstance(error, grpc.Call | grpc.aio.AioRpcError), error
    code = error.code()
    message = error.details() or code.name
    if code is grpc.StatusCode.UNAVAILABLE and message.startswith(_NOBODY):
        message = f"no gateway answers at {address} ({message.rpartition(': ')[2]})"
    return _CLASSES.get(code, RadixgateError)(message, code, _retry_seconds(error))


def _retry_seconds(error: grpc.Call | grpc.aio.AioRpcError) -> float | None:
    for key, value in error.trailing_metadata() or ():
        # NOTE: what is no number of milliseconds means in gRPC: do not retry.
        if key == RETRY_PUSHBACK and str(value).isdecimal():
            return int(value) / 1000
    return None
