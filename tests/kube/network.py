"""Loopback addresses of one cluster: 127.N.0.x for Services, 127.N.1.x and up for pods.

N differs among clusters that run at once on a machine. An address is given once, never again.
"""

import os
import socket
from collections.abc import Iterator
from itertools import count

_LOCK_PORT = 6443


class Network:
    """The addresses of a cluster, kept from others until closed."""

    def __init__(self) -> None:
        first = os.getpid()
        for number in (16 + (first + step) % 200 for step in range(200)):
            self._lock = socket.socket()
            try:
                self._lock.bind((f"127.{number}.0.1", _LOCK_PORT))
            except OSError:
                self._lock.close()
                continue
            self.prefix = f"127.{number}."
            self.services: Iterator[str] = (f"127.{number}.0.{host}" for host in range(2, 255))
            self._pods = (f"127.{number}.{1 + n // 250}.{1 + n % 250}" for n in count())
            return
        raise OSError("no 127.x.0.0/16 is free on this machine")

    def pod_address(self) -> str:
        """An address that no pod had before."""
        return next(self._pods)

    def close(self) -> None:
        """Let other clusters have them."""
        self._lock.close()
