"""One of several gateway processes: its parent writes what to run to its stdin (`cli.processes`).

Once it serves it writes one line to stdout: its metrics port, or nothing.
"""

import os
import pickle
import sys

from cli import logs
from gateway.config import ConfigError
from gateway.main import run_gateway
from gateway.running import Gateway


def main() -> None:
    """Run the gateway that stdin describes, and exit as it ends."""
    name, config = pickle.load(sys.stdin.buffer)
    logs.configure(f"{name} ")
    try:
        run_gateway(config, ready)
    except ConfigError as error:
        sys.exit(f"error: {error}")


def ready(gateway: Gateway) -> None:
    """Tell the parent."""
    print(gateway.metrics_port or "", flush=True)
    # NOTE: nobody reads the pipe any more, so what is printed from now on must not fill it.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


if __name__ == "__main__":
    main()
