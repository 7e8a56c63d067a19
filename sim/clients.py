"""Who sends a trace: clients that follow its times, or so many that always have one under way."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

from sim.loop import EventLoop
from sim.request import Request


class Clients(ABC):
    """Args:
    requests: of a trace, which are sent once each.
    loop: their time.
    send: takes one, when it is sent.
    """

    def __init__(
        self, requests: Sequence[Request], loop: EventLoop, send: Callable[[Request], None]
    ) -> None:
        self._requests = requests
        self._loop = loop
        self._send = send

    @abstractmethod
    def begin(self) -> None:
        """Send what is due at once, and see to the rest."""

    @abstractmethod
    def over(self, number: int) -> None:
        """Request `number` was answered or refused."""


class OpenLoop(Clients):
    """Each request is sent at its time, or when its client has thought about the answer before."""

    def __init__(
        self, requests: Sequence[Request], loop: EventLoop, send: Callable[[Request], None]
    ) -> None:
        super().__init__(requests, loop, send)
        self._firsts = (request for request in requests if request.after is None)
        self._followers: defaultdict[int, list[Request]] = defaultdict(list)
        for request in requests:
            if request.after is not None:
                self._followers[request.after].append(request)

    def begin(self) -> None:
        """As `Clients` says."""
        self._wait_for_next()

    def over(self, number: int) -> None:
        """As `Clients` says."""
        for request in self._followers.pop(number, ()):
            when = max(request.at, self._loop.now + request.think)
            self._loop.call_at(when, partial(self._send, request))

    def _wait_for_next(self) -> None:
        request = next(self._firsts, None)
        if request is not None:
            self._loop.call_at(request.at, partial(self._send_in_time, request))

    def _send_in_time(self, request: Request) -> None:
        self._send(request)
        self._wait_for_next()


class ClosedLoop(Clients):
    """The next request is sent when one is over, whatever its time, and whom it follows.

    Args: how `many` are under way, as long as there are more.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        loop: EventLoop,
        send: Callable[[Request], None],
        many: int,
    ) -> None:
        super().__init__(requests, loop, send)
        self._many = many
        self._unsent = iter(requests)

    def begin(self) -> None:
        """As `Clients` says."""
        for _ in range(self._many):
            self._send_next()

    def over(self, number: int) -> None:  # noqa: ARG002
        """As `Clients` says."""
        self._loop.call_at(self._loop.now, self._send_next)

    def _send_next(self) -> None:
        request = next(self._unsent, None)
        if request is not None:
            self._send(request)
