"""Policies that know how many of their own requests each worker has, and nothing of others'."""

from collections.abc import Collection

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

    def least_in_flight(self, workers: Collection[str]) -> str:
        """One of `workers` that has the fewest; of several one is drawn."""
        fewest = min(map(self.in_flight.__getitem__, workers))
        return self.site.rng.choice(
            [worker for worker in workers if self.in_flight[worker] == fewest]
        )
