"""Policies that know how many of their own requests each worker has, and nothing of others'."""

from sim.policy.base import Job, Policy, Site


class InFlightPolicy(Policy):
    """Counts a request from when it is sent to when its answer is complete.

    Attributes: `in_flight`, requests at each worker, in the order of `site.places`.
    """

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.in_flight = {place.id: 0 for place in site.places}

    def arrived(self, job: Job) -> None:
        """Sent now."""
        choice = self.choose(job)
        self.in_flight[choice.worker] += 1
        self.site.send(job, choice)

    def ended(self, job: Job, worker: str) -> None:  # noqa: ARG002
        """The answer is complete."""
        self.in_flight[worker] -= 1

    def least_in_flight(self) -> str:
        """One of the workers that have the fewest, at random."""
        fewest = min(self.in_flight.values())
        tied = [worker for worker, count in self.in_flight.items() if count == fewest]
        return self.site.rng.choice(tied)
