"""Any worker."""

from sim.policy.base import Choice, Job, Policy


class Uniform(Policy):
    """Each with the same chance."""

    def choose(self, job: Job) -> Choice:  # noqa: ARG002
        """One at random."""
        return Choice(self.site.rng.choice(self.site.places).id)
