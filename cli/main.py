"""The `radixgate` command; says what to install when its own libraries are missing."""

import io
import signal
import sys
from types import FrameType


def main() -> None:
    """Run the command line, and exit."""
    try:
        from cli.app import app
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich"}:
            raise
        sys.exit("the command line needs typer and rich: pip install 'radixgate[cli]'")
    # NOTE: Python ends at once on SIGTERM, without the `finally` that ends what a command started.
    signal.signal(signal.SIGTERM, _end)
    if isinstance(sys.stdin, io.TextIOWrapper):
        # NOTE: text that is not UTF-8 is refused with the request that has it, not by a traceback.
        sys.stdin.reconfigure(errors="surrogateescape")
    app()


def _end(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
