"""One worker after the other."""

from itertools import cycle

from sim.policy.base import Choice, Job, Policy, Site


class RoundRobin(Policy):
    """In the order of `site.places`, whatever was asked and however long the answers take."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._workers = cycle([place.id for place in site.places])

    def choose(self, job: Job) -> Choice:  # noqa: ARG002
        """The next one."""
        return Choice(next(self._workers))
