"""The router of each model pool. Pure."""

from collections.abc import Callable

from gateway.route.router import Router
from gateway.summary.events import Event, Loaded


class Routers:
    """Made as pools come; watches their events for load reports.

    Args: `pick(n)`, a random number below n.
    """

    def __init__(self, pick: Callable[[int], int]) -> None:
        self._pick = pick
        self._routers: dict[str, Router] = {}

    def of(self, model: str) -> Router:
        """The router of the pool of `model`, which is to hear of every change of its summaries."""
        router = self._routers.get(model)
        if router is None:
            router = self._routers[model] = Router(self._pick)
        return router

    def observe(self, model: str, event: Event) -> None:
        """Take one event of the pool of `model`."""
        if isinstance(event, Loaded):
            self.of(model).reported(event.worker)
