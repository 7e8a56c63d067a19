"""How readers and generators put a trace together: requests in any order, blocks by any name."""

from array import array
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count, repeat

from sim.request import Content, Request, Trace


class Ids:
    """Small numbers for the names of blocks: equal ones for equal names, from 0."""

    def __init__(self) -> None:
        self._count = count()
        self._ids: defaultdict[Hashable, int] = defaultdict(self._count.__next__)

    def of(self, names: Iterable[Hashable]) -> "array[int]":
        """One for each name."""
        return array("I", map(self._ids.__getitem__, names))

    def own(self) -> int:
        """One that no name has."""
        return next(self._count)

    def unique(self, tokens: int, block_tokens: int) -> Content:
        """Tokens of which no other content has any."""
        return Content(
            array("I", repeat(self.own(), -(-tokens // block_tokens))), block_tokens, tokens
        )


@dataclass(slots=True)
class Draft:
    """A request, as `sim.request.Request`, that has no number yet.

    Args: `at`, seconds from any beginning; `after`, the request without whose answer it would not
    be sent; the others as there.
    """

    at: float
    prompt: Content
    output_tokens: int
    output: Content | None = None
    session: str = ""
    after: "Draft | None" = None
    think: float = 0.0
    tenant: str = ""
    priority: int = 0


def trace_of(name: str, drafts: Sequence[Draft]) -> Trace:
    """The trace of `drafts`: by time, and as they come where that is equal. It begins with the
    first of them.

    No request may come before the one that it is `after`.
    """
    ordered = sorted(drafts, key=lambda draft: draft.at)
    begin = ordered[0].at if ordered else 0.0
    numbers = {id(draft): number for number, draft in enumerate(ordered)}
    return Trace(
        name,
        [
            Request(
                number,
                draft.at - begin,
                draft.prompt,
                draft.output_tokens,
                draft.output,
                draft.session,
                None if draft.after is None else numbers[id(draft.after)],
                draft.think,
                draft.tenant,
                draft.priority,
            )
            for number, draft in enumerate(ordered)
        ],
    )
