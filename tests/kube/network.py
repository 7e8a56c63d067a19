"""Loopback addresses of one cluster: 127.N.0.x for Services, 127.N.1.x and up for pods.

N differs among clusters that run at once on a machine. An address is given once, never again.
"""

import os
import socket
from collections.abc import Iterator
from itertools import count

_LOCK_PORT = 6443


class Network:
    """The addresses of a cluster, kept from others until closed.

    Attributes: `prefix`, "127.N."; `services` and `pods`, addresses that none of them had before.
    """

    def __init__(self) -> None:
        numbers = (16 + (os.getpid() + step) % 200 for step in range(200))
        self.prefix = next(f"127.{number}." for number in numbers if self._lock(number))
        self.services: Iterator[str] = (f"{self.prefix}0.{host}" for host in range(2, 255))
        self.pods: Iterator[str] = (f"{self.prefix}{1 + n // 250}.{1 + n % 250}" for n in count())

    def close(self) -> None:
        """Let other clusters have them."""
        self._socket.close()

    def _lock(self, number: int) -> bool:
        self._socket = socket.socket()
        try:
            self._socket.bind((f"127.{number}.0.1", _LOCK_PORT))
        except OSError:
            self._socket.close()
            return False
        return True
