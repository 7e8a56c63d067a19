"""The step loop's body: what one thread does with sequences, KV and model, step by step.

No threads here and no clock but the one it is given, so tests drive it step by step. An error while
a step is computed ends the requests that were in it and nothing else; an error in the bookkeeping
of blocks is not caught, since what is cached could no longer be believed.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from worker.attention.base import PagedBatch
from worker.engine.batch import build_batch
from worker.engine.events import Event, Failed, Finished, Started
from worker.engine.metrics import EngineMetrics
from worker.engine.request import Request
from worker.engine.sampler import sample
from worker.engine.scheduler import Chunk, Scheduler
from worker.engine.sequence import Sequence, Times
from worker.engine.stats import EngineLoad, Rates
from worker.engine.text import TextStream
from worker.kv.manager import KVManager
from worker.kv.tokens import Tokens

_log = logging.getLogger(__name__)

Ticket = int


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Args: `stride` tokens between boundaries; the other two as in `Scheduler`."""

    stride: int
    max_running: int
    token_budget: int


class EngineCore:
    """Brings sequences forward.

    Args:
        forward: the model over its KV memory: a batch to the logits [R, vocab] of its sample rows.
        manager: of that KV memory.
        tokenizer: of the model.
        config: see there.
        metrics: told what happens.
        clock: seconds, never going back.
        device: where `forward` takes its batch.
    """

    def __init__(
        self,
        forward: Callable[[PagedBatch], Tensor],
        manager: KVManager,
        *,
        tokenizer: Tokenizer,
        config: EngineConfig,
        metrics: EngineMetrics,
        clock: Callable[[], float],
        device: torch.device,
    ) -> None:
        self._forward = forward
        self._manager = manager
        self._tokenizer = tokenizer
        self._config = config
        self._metrics = metrics
        self._clock = clock
        self._device = device
        self._scheduler = Scheduler(manager, config.max_running, config.token_budget)
        self._sequences: dict[Ticket, Sequence] = {}
        self._rates = Rates()

    @property
    def idle(self) -> bool:
        """Whether there is nothing to compute."""
        return not self._sequences

    def add(self, ticket: Ticket, request: Request, arrived: float) -> None:
        """Take a request; tickets are unique, and lower ones are more urgent."""
        tokens = Tokens(request.namespace, self._config.stride, request.tenant)
        tokens.extend(request.prompt)
        text = TextStream(self._tokenizer, tokens.ids(), request.stop)
        sequence = Sequence(request, ticket, tokens, text, Times(arrived))
        self._sequences[ticket] = sequence
        self._scheduler.add(sequence)

    def cancel(self, ticket: Ticket) -> None:
        """Drop a request and all it holds, whatever its state; one that has ended is ignored."""
        if ticket in self._sequences:
            self._remove(self._sequences[ticket])
            self._metrics.cancelled()

    def step(self) -> list[tuple[Ticket, Event]]:
        """Compute one step; what happened to whom, in order."""
        began = self._clock()
        step = self._scheduler.schedule()
        assert step.chunks, "nothing to compute, although the engine is not idle"
        events: list[tuple[Ticket, Event]] = [
            (sequence.order, self._start(sequence, began))
            for sequence in step.admitted
            if sequence.cached_tokens is None
        ]
        try:
            logits = self._forward(build_batch(step.chunks, self._manager.block_size, self._device))
        except Exception as error:
            _log.exception("a step failed")
            return events + [self._fail(chunk.sequence, error) for chunk in step.chunks]

        prefill = sum(chunk.length for chunk in step.chunks if _is_prefill(chunk))
        decode = sum(chunk.length for chunk in step.chunks) - prefill
        rows = iter(logits)
        for chunk in step.chunks:
            events += self._advance(chunk, next(rows) if chunk.completes else None)
        self._rates.step(prefill, decode, self._clock() - began)
        self._metrics.step(prefill, decode, len(step.preempted))
        return events

    def load(self) -> EngineLoad:
        """The state now; also in the metrics from here on."""
        load = EngineLoad(
            waiting=len(self._scheduler.waiting),
            running=len(self._scheduler.running),
            max_running=self._config.max_running,
            backlog_tokens=sum(sequence.pending for sequence in self._sequences.values()),
            prefill_tokens_per_second=self._rates.prefill_tokens_per_second,
            decode_tokens_per_second=self._rates.decode_tokens_per_second,
            itl_ms=self._rates.itl_ms,
            kv=self._manager.stats(),
        )
        self._metrics.load(load)
        return load

    def check_integrity(self) -> None:
        """Raises AssertionError when blocks, tree and sequences disagree."""
        self._manager.check_integrity()
        known = {*self._scheduler.waiting, *self._scheduler.running}
        assert known == set(self._sequences.values())
        assert all(sequence.kv for sequence in self._scheduler.running)
        assert not any(sequence.kv for sequence in self._scheduler.waiting)

    def _start(self, sequence: Sequence, now: float) -> Started:
        assert sequence.kv
        prompt_tokens = sequence.request.prompt_tokens
        sequence.cached_tokens = sequence.kv.cached
        sequence.times.started = now
        self._metrics.started(prompt_tokens, sequence.kv.cached)
        return Started(prompt_tokens, sequence.kv.cached)

    def _advance(self, chunk: Chunk, logits: Tensor | None) -> list[tuple[Ticket, Event]]:
        """Book what was computed; with `logits`, take the next token of the sequence."""
        sequence = chunk.sequence
        assert sequence.kv
        if logits is None:
            self._manager.commit(sequence.kv, sequence.tokens, chunk.stop)
            return []
        try:
            token = sample(logits, sequence.request.sampling, position=chunk.stop)
        except FloatingPointError as error:
            _log.error("request %r: %s", sequence.request.request_id, error)
            return [self._fail(sequence, error)]
        # NOTE: after sampling, so that KV behind broken logits is never shared.
        self._manager.commit(sequence.kv, sequence.tokens, chunk.stop)
        return [(sequence.order, event) for event in self._append(sequence, token)]

    def _append(self, sequence: Sequence, token: int) -> list[Event]:
        now, before = self._clock(), sequence.times.last_token
        events = sequence.append(token, now)
        if before is None:
            self._metrics.first_token(now - sequence.times.arrived)
        else:
            self._metrics.next_token(now - before)
            self._rates.gap(now - before)
        if isinstance(events[-1], Finished):
            self._metrics.finished(events[-1])
            self._remove(sequence)
        return events

    def _fail(self, sequence: Sequence, error: Exception) -> tuple[Ticket, Failed]:
        self._metrics.failed()
        self._remove(sequence)
        return sequence.order, Failed(f"the engine failed: {type(error).__name__}: {error}")

    def _remove(self, sequence: Sequence) -> None:
        self._scheduler.remove(sequence)
        del self._sequences[sequence.order]


def _is_prefill(chunk: Chunk) -> bool:
    """Whether the chunk is more than the newest token of a running generation."""
    return chunk.length > 1 or chunk.sequence.output_tokens == 0
