"""Says which extra to install when a command needs a library that is not there."""

from collections.abc import Iterator
from contextlib import contextmanager

from cli.exits import CommandError

_OURS = ("radixgate", "gateway", "worker", "sim", "cli")


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Import inside; a missing library becomes the advice to install `radixgate[extra]`.

    Raises:
        CommandError: a library is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith(_OURS):
            raise
        raise CommandError(
            f"this needs {error.name}, which is not installed: pip install 'radixgate[{extra}]'"
        ) from error
