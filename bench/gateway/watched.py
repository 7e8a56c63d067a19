"""A gateway that tells when its mirror changes: `python -m bench.gateway.watched REDIS_URL`.

It is `radixgate gateway` with the defaults on any free port, but for its mirror, which prints the
`seq` of each Delta with evictions as soon as it, and the router that listens to it, has taken it,
and the time in nanoseconds of the monotonic clock. The first line it prints is its address.
"""

import sys
import time

from gateway.config import GatewayConfig
from gateway.main import run_gateway
from gateway.running import Gateway
from gateway.summary import pool
from gateway.summary.events import Changed, Event
from gateway.summary.mirror import Mirror


class WatchedMirror(Mirror):
    """Prints what it has taken."""

    def apply(self, event: Event) -> bool:
        """As a mirror."""
        follows = super().apply(event)
        if follows and isinstance(event, Changed) and event.removed:
            print(event.seq, time.monotonic_ns(), flush=True)
        return follows


def print_address(running: Gateway) -> None:
    """Say that it serves."""
    print(running.address, flush=True)


if __name__ == "__main__":
    pool.Mirror = WatchedMirror  # type: ignore[attr-defined]
    run_gateway(GatewayConfig(port=0, redis_url=sys.argv[1]), print_address)
