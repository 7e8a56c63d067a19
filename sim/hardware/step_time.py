"""How long one step of a worker takes, as a formula of what the step computes.

    seconds = step + prompt_token · P + pair · A + generation · G + context_token · C

P are the prompt tokens of the step; A the pairs of one of them and a token that it attends to; G
the sequences that get a token each; C the tokens of their contexts, whose KV is read. It is linear
in its five constants, so these can be fitted to measured steps by least squares. A step that takes
the larger of two times, of compute and of memory, is taken for their sum: that is right where one
is much the larger, and else too long, by half of it at most.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple


class StepWork(NamedTuple):
    """What one step computes.

    Args:
        prompt_tokens: P, of all chunks that are no generations.
        pairs: A, for these.
        generations: G.
        context_tokens: C, of the generations.
    """

    prompt_tokens: int
    pairs: float
    generations: int
    context_tokens: int


@dataclass(frozen=True, slots=True)
class StepTime:
    """The constants, in seconds; see the module.

    Raises:
        ValueError: one is negative or not finite, or a step and a token take no time.
    """

    step: float
    prompt_token: float
    pair: float
    generation: float
    context_token: float

    def __post_init__(self) -> None:
        values = {name: getattr(self, name) for name in self.__slots__}
        wrong = [name for name, value in values.items() if not 0 <= value < math.inf]
        if wrong:
            raise ValueError(f"step time: {', '.join(wrong)} must be 0 or more seconds: {values}")
        if not (self.prompt_token > 0 and self.step + self.generation > 0):
            raise ValueError(f"step time: a token must take some time: {values}")

    def seconds(self, work: StepWork) -> float:
        """Of a step with this work."""
        return (
            self.step
            + self.prompt_token * work.prompt_tokens
            + self.pair * work.pairs
            + self.generation * work.generations
            + self.context_token * work.context_tokens
        )

    def of_generations(self, generations: int, context_tokens: int, steps: int) -> float:
        """Of `steps` steps in a row that only generate.

        Args: `generations` in each; `context_tokens` in the first, and one more for each
        generation in every next one.
        """
        first = self.step + self.generation * generations + self.context_token * context_tokens
        growth = self.context_token * generations
        return steps * first + growth * steps * (steps - 1) / 2

    def generations_in(self, generations: int, context_tokens: int, seconds: float) -> int:
        """The fewest such steps that take `seconds`, at least one."""
        first = self.step + self.generation * generations + self.context_token * context_tokens
        growth = self.context_token * generations
        if growth:
            linear = first - growth / 2
            steps = (math.sqrt(linear * linear + 2 * growth * seconds) - linear) / growth
        else:
            steps = seconds / first
        fewest = max(1, math.ceil(steps))
        # NOTE: the root is inexact by some parts in 10^16, a step more or less.
        while self.of_generations(generations, context_tokens, fewest) < seconds:
            fewest += 1
        while (
            fewest > 1 and self.of_generations(generations, context_tokens, fewest - 1) >= seconds
        ):
            fewest -= 1
        return fewest
