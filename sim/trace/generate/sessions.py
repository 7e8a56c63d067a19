"""Requests that follow on each other: chats of several turns, and agents that call tools."""

from array import array
from collections.abc import Generator as Steps
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from sim.trace.draft import Draft
from sim.trace.generate.base import Generator, Writer, draft
from sim.trace.row import TraceError


def _one_or_more(name: str, mean: float) -> None:
    if mean < 1:
        raise TraceError(f"{name} must be 1 or more, and is {mean}")


def _at_least_one(rng: Random, mean: float) -> int:
    """A number of things, `mean` on average, each of which may be the last."""
    things = 1
    while rng.random() * mean >= 1:
        things += 1
    return things


def _then(
    rng: Random, before: Draft, think: float, prompt: "array[int]", output: "array[int]"
) -> Draft:
    """What is asked after the answer to `before`."""
    pause = rng.expovariate(1 / think) if think else 0.0
    after = draft(before.at + pause, prompt, output, before.session)
    after.after, after.think = before, pause
    return after


@dataclass(frozen=True, kw_only=True)
class Chat(Generator):
    """People who say something, read the answer, and go on.

    Args:
        turns: of a chat, on average.
        think: seconds from an answer to the next turn.
        system: length of the beginning that all chats have.
        message: length of what a person says.
        output: length of answers.
    """

    turns: float = 5.0
    think: float = 20.0
    system: int = 500
    message: int = 100
    output: int = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_or_more("turns", self.turns)

    def drafts(self, rng: Random, writer: Writer) -> Iterator[Draft]:
        """Requests without end."""
        system = writer.exactly(self.system)
        for number, at in enumerate(self.arrivals(rng, self.turns)):
            prompt, output = system + writer.text(self.message), writer.text(self.output)
            turn = draft(at, prompt, output, f"chat {number}")
            yield turn
            for _ in range(_at_least_one(rng, self.turns) - 1):
                prompt = prompt + output + writer.text(self.message)
                output = writer.text(self.output)
                turn = _then(rng, turn, self.think, prompt, output)
                yield turn


@dataclass(frozen=True, kw_only=True)
class Agents(Generator):
    """Agents that call a tool and go on with its result, or split into several and gather theirs.

    The ones into which an agent splits begin with all that it knows, and do not split again. It
    goes on when the last of them, by number, has ended.

    Args:
        calls: of each agent, on average, its last answer included.
        tool: seconds that a tool takes.
        branch: how probable it is that an agent splits instead of calling a tool.
        branches: into so many.
        system: length of the beginning that all have, with the tools they may call.
        task: length of what an agent is told to do.
        output: length of answers.
        result: length of what a tool returns.
    """

    calls: float = 8.0
    tool: float = 2.0
    branch: float = 0.05
    branches: int = 3
    system: int = 4000
    task: int = 300
    output: int = 150
    result: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_or_more("calls", self.calls)
        if self.branch > 1:
            raise TraceError(f"branch must be 0 to 1, a probability, and is {self.branch}")

    def drafts(self, rng: Random, writer: Writer) -> Iterator[Draft]:
        """Requests without end."""
        system = writer.exactly(self.system)
        each = self.calls * (1 + self.branch * self.branches * self.calls)
        for number, at in enumerate(self.arrivals(rng, each)):
            prompt, output = system + writer.text(self.task), writer.text(self.output)
            first = draft(at, prompt, output, f"agent {number}")
            yield from self._agent(rng, writer, first, self.branch)

    def _agent(
        self, rng: Random, writer: Writer, step: Draft, branch: float
    ) -> Steps[Draft, None, Draft]:
        """All that an agent asks, its first `step` included; gives the last one."""
        yield step
        for _ in range(_at_least_one(rng, self.calls) - 1):
            assert step.output
            known, before = step.prompt.ids + step.output.ids, step
            results = 1
            if rng.random() < branch:
                results = self.branches
                for _ in range(results):
                    task = known + writer.text(self.task)
                    first = _then(rng, step, 0.0, task, writer.text(self.output))
                    before = yield from self._agent(rng, writer, first, 0.0)
            prompt = known
            for _ in range(results):
                prompt = prompt + writer.text(self.result)
            step = _then(rng, before, self.tool, prompt, writer.text(self.output))
            yield step
        return step
