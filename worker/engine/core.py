"""The step loop's body: what one thread does with sequences, KV and model, step by step.

No threads here and no clock but the one it is given, so tests drive it step by step. An error while
a step is computed ends the requests that were in it and nothing else; an error in the bookkeeping
of blocks is not caught, since what is cached could no longer be believed.
"""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from worker.attention.base import PagedBatch
from worker.engine.batch import build_batch
from worker.engine.events import Event, Expired, Failed, Started
from worker.engine.load import engine_load
from worker.engine.metrics import EngineMetrics
from worker.engine.output import OutputText
from worker.engine.request import Request
from worker.engine.sampler import Logits
from worker.engine.scheduler import Chunk, Scheduler
from worker.engine.sequence import Reuse, Sequence, Times
from worker.engine.stats import EngineLoad, Rates
from worker.kv.hottest import HotPrefix
from worker.kv.manager import KVManager
from worker.kv.tokens import Tokens

_log = logging.getLogger(__name__)

Ticket = int


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How the engine works.

    Args:
        stride: tokens between boundaries.
        max_running: as in `Scheduler`.
        token_budget: as in `Scheduler`.
        chunk_seconds: by so much at most the prompts in one step delay its generations.
        attention_tokens: of the model, see `radixgate.work`; 0 when that is not known.
    """

    stride: int
    max_running: int
    token_budget: int
    chunk_seconds: float
    attention_tokens: int = 0


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
        self._uncounted = EngineMetrics.unread()
        self._clock = clock
        self._device = device
        self._scheduler = Scheduler(manager, config.max_running, config.token_budget)
        self._sequences: dict[Ticket, Sequence] = {}
        self._rates = Rates()

    @property
    def idle(self) -> bool:
        """Whether there is nothing to compute."""
        return not self._sequences

    def add(
        self,
        ticket: Ticket,
        request: Request,
        arrived: float,
        deadline: float = math.inf,
        text: OutputText | None = None,
    ) -> None:
        """Take a request; tickets are unique, and a later one is higher.

        A request that was resumed comes with its `text`, which has not ended.
        """
        tokens = self.tokens(request)
        tokens.extend(request.resumed)
        if text is None:
            text = OutputText(self._tokenizer, request)
        sequence = Sequence(request, ticket, tokens, text, Times(arrived), deadline)
        self._sequences[ticket] = sequence
        self._scheduler.add(sequence)

    def cancel(self, ticket: Ticket) -> None:
        """Drop a request and all it holds, whatever its state; one that has ended is ignored."""
        if ticket in self._sequences:
            sequence = self._sequences[ticket]
            self._remove(sequence)
            # NOTE: whoever waited until its deadline gives up at the same moment.
            late = sequence.deadline <= self._clock()
            self._metrics_of(sequence).ended("expired" if late else "cancelled")

    def pin(self, tokens: Tokens, ttl: float) -> int:
        """Keep what is cached of `tokens` for `ttl` seconds; raises as `KVManager.pin`."""
        return self._manager.pin(tokens, self._clock(), ttl)

    def unpin(self, tokens: Tokens) -> bool:
        """Give up the pin of `tokens`; whether there was one."""
        self._manager.expire(self._clock())
        return self._manager.unpin(tokens)

    def cached(self, request: Request) -> int:
        """Tokens of its prompt that are cached, whole blocks."""
        return self._manager.cached_prefix(self.tokens(request))

    def hottest(self, most_tokens: int) -> list[HotPrefix]:
        """As `KVManager.hottest`."""
        return self._manager.hottest(most_tokens)

    def tokens(self, request: Request) -> Tokens:
        """The prompt of `request`."""
        tokens = Tokens(request.namespace, self._config.stride, request.tenant)
        tokens.extend(request.prompt)
        return tokens

    def step(self) -> list[tuple[Ticket, Event]]:
        """Compute one step; what happened to whom, in order."""
        began = self._clock()
        self._manager.expire(began)
        events = self._expire(began)
        step = self._scheduler.schedule(self._rates.chunk(self._config.chunk_seconds))
        chunks = step.chunks()
        assert chunks or self.idle, "nothing to compute, although the engine is not idle"
        if not chunks:
            return events
        events += [
            (sequence.order, self._start(sequence, began))
            for sequence in step.admitted
            if sequence.reuse is None
        ]
        try:
            batch = build_batch(chunks, self._manager.block_size, self._device)
            logits = Logits(self._forward(batch))
        except Exception as error:
            _log.exception("a step failed")
            return events + [self._fail(chunk.sequence, error) for chunk in chunks]

        now = self._clock()
        for row, chunk in enumerate(chunks):
            events += self._advance(chunk, logits, row, now)
        prompt_tokens, generations = step.prompt_tokens, len(step.generating)
        work = step.prompt_work(self._config.attention_tokens)
        self._rates.step(prompt_tokens, generations, self._clock() - began, work)
        self._metrics.step(prompt_tokens, generations, len(step.preempted))
        return events

    def load(self) -> EngineLoad:
        """The state now, without pins whose time has passed; also in the metrics from here on."""
        self._manager.expire(self._clock())
        load = engine_load(
            self._scheduler,
            self._sequences.values(),
            self._rates,
            self._manager.stats(),
            max_running=self._config.max_running,
            attention_tokens=self._config.attention_tokens,
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

    def _expire(self, now: float) -> list[tuple[Ticket, Event]]:
        """Drop those whose deadline has passed, before anything is computed for them."""
        late = [each for each in self._sequences.values() if each.deadline <= now]
        for sequence in late:
            self._remove(sequence)
            self._metrics_of(sequence).ended("expired")
        return [(sequence.order, _expired(sequence, now)) for sequence in late]

    def _start(self, sequence: Sequence, now: float) -> Started:
        assert sequence.kv
        request, misses = sequence.request, sequence.kv.misses
        cached = min(sequence.kv.cached, request.prompt_tokens)
        sequence.reuse = Reuse(cached, None if request.resumed else misses)
        sequence.times.started = now
        self._metrics_of(sequence).started(now - sequence.times.arrived, cached, misses)
        return Started(request.prompt_tokens, cached)

    def _advance(
        self, chunk: Chunk, logits: Logits, row: int, now: float
    ) -> list[tuple[Ticket, Event]]:
        """Book what was computed; when it was all, take the next token of the sequence."""
        sequence = chunk.sequence
        assert sequence.kv
        try:
            if chunk.completes:
                token = logits.sample(row, sequence.request.sampling, position=chunk.stop)
            else:
                logits.likeliest(row, position=chunk.stop)
        except FloatingPointError as error:
            _log.error("request %r: %s", sequence.request.request_id, error)
            return [self._fail(sequence, error)]
        # NOTE: after a look at the logits, so that KV behind broken ones is never shared.
        self._manager.commit(sequence.kv, sequence.tokens, chunk.stop)
        return self._append(sequence, token, now) if chunk.completes else []

    def _append(self, sequence: Sequence, token: int, now: float) -> list[tuple[Ticket, Event]]:
        times = sequence.times
        before = times.last_token
        output, finished = sequence.append(token, now)
        if before is None:
            assert times.started is not None
            self._metrics_of(sequence).first_token(now - times.arrived, now - times.started)
        else:
            self._metrics_of(sequence).next_token(now - before)
            self._rates.gap(now - before)
        if finished is None:
            return [(sequence.order, output)]
        self._metrics_of(sequence).finished(finished)
        self._remove(sequence)
        return [(sequence.order, output), (sequence.order, finished)]

    def _fail(self, sequence: Sequence, error: Exception) -> tuple[Ticket, Failed]:
        self._metrics_of(sequence).ended("failed")
        self._remove(sequence)
        return sequence.order, Failed(f"the engine failed: {type(error).__name__}: {error}")

    def _metrics_of(self, sequence: Sequence) -> EngineMetrics:
        return self._metrics if sequence.request.counted else self._uncounted

    def _remove(self, sequence: Sequence) -> None:
        self._scheduler.remove(sequence)
        del self._sequences[sequence.order]


def _expired(sequence: Sequence, now: float) -> Expired:
    after = f"the deadline passed {now - sequence.times.arrived:.3f} s after arrival"
    if sequence.times.started is None:
        return Expired(f"{after}, before anything was computed")
    return Expired(f"{after}, with {sequence.output_tokens} tokens generated")
