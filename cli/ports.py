"""The port that several gateway processes share."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from cli.exits import CommandError


@contextmanager
def hold_port(host: str, port: int) -> Iterator[int]:
    """Keep a port, any free one for 0, for processes that share it; here nobody can connect.

    Raises:
        CommandError: another program listens there, the host is none of this machine, or the
            system cannot share ports.
    """
    if not hasattr(socket, "SO_REUSEPORT"):
        raise CommandError(
            "--processes: this system has no SO_REUSEPORT, by which processes share a port; "
            "run 1, or several gateways on ports of their own"
        )
    try:
        held = _bound(host, port)
    except OSError as error:
        raise CommandError(
            f"cannot listen on {host}:{port}, is another program using that port? {error.strerror}"
        ) from error
    with held:
        yield held.getsockname()[1]


def _bound(host: str, port: int) -> socket.socket:
    family, kind, _, _, address = socket.getaddrinfo(
        host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    # NOTE: who shares a port shares it with any stranger that does so too, so alone at first.
    with socket.socket(family, kind) as alone:
        alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        alone.bind(address)
        address = alone.getsockname()
    held = socket.socket(family, kind)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(address)
    return held
