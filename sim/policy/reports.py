"""Policies that follow the workers' own reports of what they store and evict."""

from gateway.route.index import PrefixIndex
from sim.policy.base import Site
from sim.policy.in_flight import InFlightPolicy
from worker.kv.events import Change


class ReportsPolicy(InFlightPolicy):
    """Attributes: `held`, what workers hold by their reports."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.held = PrefixIndex()

    def changed(self, worker: str, change: Change) -> None:
        """A report came."""
        for hashes in change.removed.values():
            self.held.removed(worker, hashes)
        self.held.stored(worker, change.stored)
