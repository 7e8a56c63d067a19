"""Requests that follow on nobody: unique ones, with a shared system prompt, and over documents."""

from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from sim.trace.draft import Draft
from sim.trace.generate.base import Generator, Writer, draft, popular
from sim.trace.row import TraceError


@dataclass(frozen=True, kw_only=True)
class Unique(Generator):
    """Nothing is ever asked twice: no cache helps, and whoever hopes for one only loses.

    Args: `prompt` and `output`, their lengths.
    """

    prompt: int = 2000
    output: int = 200

    def drafts(self, rng: Random, writer: Writer) -> Iterator[Draft]:
        """Requests without end."""
        for at in self.arrivals(rng):
            yield draft(at, writer.text(self.prompt), writer.text(self.output))


@dataclass(frozen=True, kw_only=True)
class Shared(Generator):
    """All begin with one of some system prompts, some of which are more popular than others.

    Args:
        systems: how many there are.
        zipf: how much more popular the first ones are; 0 makes all equal.
        system: length of each.
        prompt: length of what follows.
        output: length of answers.
    """

    systems: int = 1
    zipf: float = 1.0
    system: int = 2000
    prompt: int = 300
    output: int = 200

    def drafts(self, rng: Random, writer: Writer) -> Iterator[Draft]:
        """Requests without end."""
        systems = [writer.exactly(self.system) for _ in range(self.systems)]
        weights = popular(self.systems, self.zipf)
        for at in self.arrivals(rng):
            (system,) = rng.choices(systems, cum_weights=weights)
            yield draft(at, system + writer.text(self.prompt), writer.text(self.output))


@dataclass(frozen=True, kw_only=True)
class Rag(Generator):
    """Questions about several documents each, which stand in the prompt in any order.

    Args:
        documents: how many there are.
        zipf: how much more popular the first ones are; 0 makes all equal.
        document: length of each.
        picked: documents in a prompt.
        system: length of the common beginning.
        question: length of what follows the documents.
        output: length of answers.
    """

    documents: int = 1000
    zipf: float = 1.0
    document: int = 1000
    picked: int = 4
    system: int = 300
    question: int = 60
    output: int = 150

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.picked > self.documents:
            raise TraceError(
                f"picked must be at most documents, {self.documents}, and is {self.picked}"
            )

    def drafts(self, rng: Random, writer: Writer) -> Iterator[Draft]:
        """Requests without end."""
        system = writer.exactly(self.system)
        documents = [writer.text(self.document) for _ in range(self.documents)]
        weights = popular(self.documents, self.zipf)
        for at in self.arrivals(rng):
            # In the order in which they are drawn; a dict keeps it.
            places: dict[int, None] = {}
            while len(places) < self.picked:
                places[bisect(weights, rng.random() * weights[-1])] = None
            prompt = system
            for place in places:
                prompt = prompt + documents[place]
            yield draft(at, prompt + writer.text(self.question), writer.text(self.output))
