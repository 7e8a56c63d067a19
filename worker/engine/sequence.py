"""One generation while the engine works on it: its tokens, its KV, its text and its times.

A sequence has no phases. It has tokens, some of which are computed; a step computes more, and when
the last one is computed the step gives a new token. The prompt of a fresh sequence, the whole of a
preempted one and the last token of a running one are all just tokens still to be computed.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from radixgate.work import prefill_work

from worker.engine.events import Finished, FinishReason, Output
from worker.engine.request import Request
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
    """How many tokens of a prompt were `cached`, and why the others were not, if that is known."""

    cached: int
    misses: Misses | None


class Text(Protocol):
    """The output as text. `reason`: why it has ended, None while it goes on; `stop`: the stop
    string that ended it, if one did.
    """

    reason: FinishReason | None
    stop: str | None

    def take(self, token: int) -> str:
        """The text that `token` decides; it may end the output."""


class Backlog(NamedTuple):
    """Still to be computed: `tokens`, and the same as work, see `radixgate.work`."""

    tokens: int
    work: float


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
        urgency: see the type.
    """

    request: Request
    order: int
    tokens: Tokens
    text: Text
    times: Times
    deadline: float = math.inf
    kv: SequenceKV | None = field(default=None)
    cached_hint: int = 0
    reuse: Reuse | None = None
    preemptions: int = 0
    urgency: Urgency = field(init=False)

    def __post_init__(self) -> None:
        self.urgency = -self.request.priority, self.order

    @property
    def counts(self) -> bool:
        """Whether what it finds cached says that a client wants it: not after a preemption."""
        return self.request.counted and self.reuse is None

    @property
    def pending(self) -> int:
        """Tokens to compute before the next comes; at least 1, since the last gives the next."""
        stored = self.kv.stored if self.kv else self.cached_hint
        pending = self.tokens.length - stored
        return pending if pending > 1 else 1

    @property
    def output_tokens(self) -> int:
        """Tokens generated so far, here or elsewhere."""
        return self.tokens.length - self.request.prompt_tokens

    @property
    def tokens_left(self) -> int:
        """Tokens that it may still generate."""
        return self.request.final_length - self.tokens.length

    def append(self, token: int, now: float) -> tuple[Output, Finished | None]:
        """Take the token just sampled, at time `now`; `Finished` when it ends here."""
        self.tokens.append(token)
        times = self.times
        times.last_token = now
        if times.first_token is None:
            times.first_token = now

        output = Output(token, self.text.take(token))
        return output, None if self.text.reason is None else self._finished()

    def _finished(self) -> Finished:
        times = self.times
        assert self.text.reason is not None
        assert times.started is not None
        assert times.first_token is not None
        assert times.last_token is not None
        assert self.reuse is not None
        return Finished(
            reason=self.text.reason,
            stop=self.text.stop,
            prompt_tokens=self.request.prompt_tokens,
            cached_tokens=self.reuse.cached,
            misses=self.reuse.misses,
            output_tokens=self.output_tokens,
            queue_seconds=times.started - times.arrived,
            ttft_seconds=times.first_token - times.arrived,
            total_seconds=times.last_token - times.arrived,
            preemptions=self.preemptions,
        )


def backlog(sequences: Iterable[Sequence], attention_tokens: int) -> Backlog:
    """What is pending of all `sequences`; `attention_tokens` is of the model."""
    tokens, work = 0, 0.0
    for sequence in sequences:
        pending, length = sequence.pending, sequence.tokens.length
        tokens += pending
        work += prefill_work(length - pending, length, attention_tokens)
    return Backlog(tokens, work)
