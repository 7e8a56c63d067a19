"""A trace: requests with their times, and prompts that are known by what they have in common."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

LAST_ID: Final = 2**31 - 1
"""The highest id of a block; what is above stands for output that nobody knows."""


class Content(NamedTuple):
    """Tokens of which is known where they are equal, and not what they say.

    Args:
        ids: one for every `block_tokens` tokens, in [0, 2**31), as `array("I")`; the last may stand
            for fewer. Equal ids at equal places after equal ids mean equal tokens.
        block_tokens: tokens that an id stands for; 1 when ids are token ids.
        tokens: in all.
    """

    ids: "array[int]"
    block_tokens: int
    tokens: int

    def packed(self) -> bytes:
        """As token ids, little-endian uint32: each id as often as it stands for tokens."""
        ids = np.frombuffer(self.ids, "<u4")
        return ids.repeat(self.block_tokens)[: self.tokens].tobytes()


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a trace. It is sent at `at`, or `think` after the end of `after`, if later.

    Args:
        number: its place in the trace, from 0.
        at: seconds from the beginning of the trace.
        prompt: at least one token.
        output_tokens: that are generated, at least 1.
        output: these tokens, if they are known; None for some that no other request has.
        session: whose it is, as a client says it; "" when nobody does.
        after: the number of an earlier request, without whose answer it would not be sent.
        think: seconds from that answer to this request.
        tenant: with whom it shares cached context.
        priority: higher goes first.
    """

    number: int
    at: float
    prompt: Content
    output_tokens: int
    output: Content | None = None
    session: str = ""
    after: int | None = None
    think: float = 0.0
    tenant: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Trace:
    """Args: its `name`; its `requests` by `at`, each at the place of its number."""

    name: str
    requests: Sequence[Request]

    @property
    def block_tokens(self) -> int:
        """Tokens up to which prompts can be told apart; 1 when there are no requests."""
        return self.requests[0].prompt.block_tokens if self.requests else 1

    def first(self, count: int) -> "Trace":
        """Its first `count` requests."""
        return replace(self, requests=self.requests[:count])

    def faster(self, factor: float) -> "Trace":
        """With all times divided by `factor`."""
        return replace(
            self,
            requests=[
                replace(each, at=each.at / factor, think=each.think / factor)
                for each in self.requests
            ],
        )
