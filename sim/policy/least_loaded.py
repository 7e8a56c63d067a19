"""The worker with the fewest requests in flight."""

from sim.policy.base import Choice, Job
from sim.policy.in_flight import InFlightPolicy


class LeastLoaded(InFlightPolicy):
    """Ties go to one of them at random."""

    def choose(self, job: Job) -> Choice:  # noqa: ARG002
        """One of those that have the fewest."""
        return Choice(self.least_in_flight(self.in_flight))
