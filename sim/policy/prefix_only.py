"""The worker that holds the most of the prompt by the workers' reports, however busy it is."""

from sim.policy.base import Choice, Job
from sim.policy.reports import ReportsPolicy


class PrefixOnly(ReportsPolicy):
    """Of those that hold equally much, and that may be nothing, the least loaded one."""

    def choose(self, job: Job) -> Choice:
        """Who holds the most."""
        matched = self.held.match(job.prompt.boundaries)
        if not matched:
            return Choice(self.least_in_flight(self.in_flight))
        most = max(matched.values())
        tied = [worker for worker, count in matched.items() if count == most]
        return Choice(self.least_in_flight(tied), most * self.site.stride)
