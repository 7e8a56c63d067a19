"""Steps that only generate are alike, so they are taken in one leap. Pure."""

from dataclasses import dataclass

from sim.hardware.step_time import StepTime


@dataclass(frozen=True, slots=True)
class Leap:
    """Args:
    generations: sequences that generate, all with tokens left for the steps.
    context: tokens that the first of the steps attends to.
    began: when that began.
    steps: how many.
    step_time: how long each takes.
    """

    generations: int
    context: int
    began: float
    steps: int
    step_time: StepTime

    @property
    def ends(self) -> float:
        """When the last of its steps ends."""
        return self.began + self.step_time.of_generations(
            self.generations, self.context, self.steps
        )

    def steps_by(self, now: float) -> int:
        """How many of its steps have begun by then, the one under way among them."""
        begun = self.step_time.generations_in(self.generations, self.context, now - self.began)
        # NOTE: what has passed at its end may, rounded, be more than it takes.
        return min(begun, self.steps)
