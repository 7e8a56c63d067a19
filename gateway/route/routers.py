"""The router of each model pool. Pure."""

from gateway.route.router import Router
from gateway.summary.events import Event, Loaded
from gateway.summary.outbox import OutboxOf


class Routers:
    """Made as pools come; watches their events for load reports.

    Args: `outbox_of` gives the outbox of a pool.
    """

    def __init__(self, outbox_of: OutboxOf) -> None:
        self._outbox_of = outbox_of
        self._routers: dict[str, Router] = {}

    def of(self, model: str) -> Router:
        """The router of the pool of `model`, which is to hear of every change of its summaries."""
        router = self._routers.get(model)
        if router is None:
            router = self._routers[model] = Router(self._outbox_of(model))
        return router

    def observe(self, model: str, event: Event) -> None:
        """Take one event of the pool of `model`."""
        if isinstance(event, Loaded):
            self.of(model).reported(event.worker)
