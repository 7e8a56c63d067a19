"""One generation while the engine works on it: its tokens, its KV, its text and its times.

A sequence has no phases. It has tokens, some of which are computed; a step computes more, and when
the last one is computed the step gives a new token. The prompt of a fresh sequence, the whole of a
preempted one and the last token of a running one are all just tokens still to be computed.
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from worker.engine.events import Finished, FinishReason, Output
from worker.engine.request import Request
from worker.engine.text import Piece, TextStream
from worker.kv.manager import SequenceKV
from worker.kv.misses import Misses
from worker.kv.tokens import Tokens

Urgency: TypeAlias = tuple[int, int]
"""Sorts the most urgent first: by priority, then by arrival."""


@dataclass(slots=True)
class Times:
    """When things happened, in seconds of the engine's clock; None until they do."""

    arrived: float
    started: float | None = None
    first_token: float | None = None
    last_token: float | None = None


class Reuse(NamedTuple):
    """How many tokens of a prompt were `cached`, and why the others were not."""

    cached: int
    misses: Misses


@dataclass(slots=True, eq=False)
class Sequence:
    """State of one request.

    Args:
        request: what was asked.
        order: of arrival, unique.
        tokens: prompt and output so far.
        text: output as text.
        times: with `arrived` set.
        deadline: when nobody wants it any more, on the engine's clock.

    Attributes:
        kv: blocks and how much of them is stored; None while waiting.
        cached_hint: tokens found cached when last looked up while waiting.
        reuse: of the prompt, when first scheduled; None until then.
        preemptions: how often it lost its blocks.
    """

    request: Request
    order: int
    tokens: Tokens
    text: TextStream
    times: Times
    deadline: float = math.inf
    kv: SequenceKV | None = field(default=None)
    cached_hint: int = 0
    reuse: Reuse | None = None
    preemptions: int = 0

    @property
    def urgency(self) -> Urgency:
        """See the type."""
        return -self.request.priority, self.order

    @property
    def pending(self) -> int:
        """Tokens to compute before the next comes; at least 1, since the last gives the next."""
        stored = self.kv.stored if self.kv else self.cached_hint
        return max(len(self.tokens) - stored, 1)

    @property
    def output_tokens(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - self.request.prompt_tokens

    @property
    def tokens_left(self) -> int:
        """Tokens that it may still generate."""
        return self.request.final_length - len(self.tokens)

    def append(self, token: int, now: float) -> tuple[Output, Finished | None]:
        """Take the token just sampled, at time `now`; `Finished` when it ends here."""
        self.tokens.append(token)
        times = self.times
        times.last_token = now
        if times.first_token is None:
            times.first_token = now

        if token in self.request.stop_token_ids:
            return self._finish(token, self.text.flush(), FinishReason.STOP)
        piece = self.text.push(token)
        if piece.stop is not None:
            return self._finish(token, piece, FinishReason.STOP)
        if self.tokens_left == 0:
            rest = self.text.flush()
            last = Piece(piece.text + rest.text, rest.stop)
            reason = FinishReason.LENGTH if rest.stop is None else FinishReason.STOP
            return self._finish(token, last, reason)
        return Output(token, piece.text), None

    def _finish(self, token: int, piece: Piece, reason: FinishReason) -> tuple[Output, Finished]:
        times = self.times
        assert times.started is not None
        assert times.first_token is not None
        assert times.last_token is not None
        assert self.reuse is not None
        finished = Finished(
            reason=reason,
            stop=piece.stop,
            prompt_tokens=self.request.prompt_tokens,
            cached_tokens=self.reuse.cached,
            misses=self.reuse.misses,
            output_tokens=self.output_tokens,
            queue_seconds=times.started - times.arrived,
            ttft_seconds=times.first_token - times.arrived,
            total_seconds=times.last_token - times.arrived,
            preemptions=self.preemptions,
        )
        return Output(token, piece.text), finished
