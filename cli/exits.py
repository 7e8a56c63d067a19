"""What the exit codes of `radixgate` mean, and which failure ends with which."""

from enum import IntEnum

from radixgate import errors


class ExitCode(IntEnum):
    """How a command ended; 128 + n is the end by signal n."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNAVAILABLE = 3
    TIMEOUT = 4
    INTERRUPTED = 130


EPILOG = (
    "Exit codes: 0 done; 1 failed; 2 the command or its input is wrong; "
    "3 no gateway or worker can take it now, retry later; 4 timed out; 130 interrupted; "
    "128 + n stopped by signal n (gateway and worker: by a second one; the first lets them finish)."
)


class CommandError(Exception):
    """A command failed for a reason that its message explains in full."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code


def exit_code(error: errors.RadixgateError) -> ExitCode:
    """The exit code for a request that failed."""
    match error:
        case errors.InvalidRequest() | errors.NotFound() | errors.FailedPrecondition():
            return ExitCode.USAGE
        case errors.Unavailable() | errors.Overloaded():
            return ExitCode.UNAVAILABLE
        case errors.DeadlineExceeded():
            return ExitCode.TIMEOUT
        case _:
            return ExitCode.FAILED
