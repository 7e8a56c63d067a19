"""A worker with the real scheduler, KV manager and rates: only the model is a formula.

It goes step by step as the engine does. Steps that only generate are alike until a sequence ends or
a request comes, so they are taken in one *leap*, which is cut short when a request comes between.
Times, blocks and what is found cached are those of single steps, with two exceptions. Who asks for
half of an answer that is under way finds what is booked of it (`sim.worker.booking`). And a report
in the midst of a leap has memory, rates, `steps`, `gaps` and `busy_seconds` as they were when it
began, which is no longer ago than `MOST_LEAP_SECONDS`.
"""

from dataclasses import replace
from functools import partial
from itertools import count
from typing import Final

from sim.hardware.setup import WorkerSetup
from sim.hardware.step_time import StepWork
from sim.loop import EventLoop
from sim.request import Request
from sim.worker.base import GAP_UNIT, Listener, Worker
from sim.worker.booking import Booking
from sim.worker.generating import Generating
from sim.worker.leap import Leap
from sim.worker.visit import Visit
from worker.engine.events import FinishReason
from worker.engine.load import engine_load
from worker.engine.scheduler import Scheduler, Step
from worker.engine.sequence import Reuse, Sequence, Times
from worker.engine.stats import EngineLoad, Rates
from worker.kv.events import KvEvents

MOST_LEAP_SECONDS: Final = 1.0
"""After which a leap lands, so that what a worker reports of its memory is not older."""


class _NoText:
    """The output of a simulated sequence ends by its length."""

    reason: FinishReason | None = None
    stop: str | None = None

    def take(self, token: int) -> str:
        """No text."""
        raise NotImplementedError(token)


_NO_TEXT: Final = _NoText()


class EngineWorker(Worker):
    """See `Worker`."""

    def __init__(
        self,
        setup: WorkerSetup,
        stride: int,
        loop: EventLoop,
        events: KvEvents,
        listener: Listener,
    ) -> None:
        super().__init__(setup, stride, loop, events, listener)
        self._time = setup.step_time
        self._scheduler = Scheduler(self._manager, setup.max_running, setup.token_budget)
        self._rates = Rates()
        self._visits: dict[Sequence, Visit] = {}
        self._generating = Generating(setup.block_size)
        self._booking = Booking(self._manager, self._generating)
        self._last_step = 0.0
        self._orders = count()
        self._busy = False
        self._leap: Leap | None = None

    def needs(self, request: Request) -> int:
        """Its prompt and its output together."""
        return request.prompt.tokens + request.output_tokens

    def submit(self, visit: Visit) -> None:
        """As `Worker` says."""
        request = visit.engine_request()
        tokens = visit.tokens(self._stride)
        times = Times(self._loop.now)
        sequence = Sequence(request, next(self._orders), tokens, _NO_TEXT, times)
        if self._leap is not None:
            self._cut(self._leap)
        self._visits[sequence] = visit
        self._scheduler.add(sequence)
        if not self._busy:
            self._begin()

    def engine_load(self) -> EngineLoad:
        """As it is now, but for the tokens of a leap under way."""
        return engine_load(
            self._scheduler,
            self._visits.keys(),
            self._rates,
            self._manager.stats(),
            max_running=self._setup.max_running,
            attention_tokens=self._setup.attention_tokens,
        )

    @property
    def running(self) -> int:
        """As `Worker` says."""
        return len(self._scheduler.running)

    @property
    def waiting(self) -> int:
        """As `Worker` says."""
        return len(self._scheduler.waiting)

    def check_integrity(self) -> None:
        """As `Worker` says."""
        super().check_integrity()
        assert {*self._scheduler.waiting, *self._scheduler.running} == self._visits.keys()
        assert self._busy == bool(self._visits)

    def _begin(self) -> None:
        """The next step, or the next leap."""
        now = self._loop.now
        step = self._scheduler.schedule(self._rates.chunk(self._setup.chunk_seconds))
        self._busy = bool(step.generating or step.prompts)
        if not self._busy:
            assert not self._visits, "sequences wait, and none can run"
            return
        for sequence in step.admitted:
            self._start(sequence)
        for sequence in step.preempted:
            if sequence in self._generating:
                self._generating.leave(sequence)
                sequence.times.last_token = self._last_step
        # NOTE: who comes back all cached, from a preemption, had its last token long ago.
        back = self._generating.others(step.generating)
        for sequence in back:
            self._generating.join(sequence, self._visits[sequence])
        if step.prompts or back:
            seconds = self._time.seconds(self._work(step))
            self.busy_seconds += seconds
            self.steps += 1
            self._loop.call_at(now + seconds, partial(self._finish, step, back, seconds))
            return
        steps = self._most_steps()
        generations, context = len(self._generating), self._generating.context
        self._fly(Leap(generations, context, now, steps, self._time))

    def _work(self, step: Step) -> StepWork:
        pairs = sum(
            (each.stop - each.start) * (each.start + each.stop) / 2 for each in step.prompts
        )
        generations, context = len(self._generating), self._generating.context
        return StepWork(step.prompt_tokens, pairs, generations, context)

    def _start(self, sequence: Sequence) -> None:
        """Tell of a sequence that has just been admitted, if that is for the first time."""
        if sequence.reuse is not None:
            return
        assert sequence.kv
        cached = min(sequence.kv.cached, sequence.request.prompt_tokens)
        sequence.reuse = Reuse(cached, sequence.kv.misses)
        self._listener.started(self._visits[sequence], cached)

    def _finish(self, step: Step, back: list[Sequence], seconds: float) -> None:
        """A step is over that computed prompts too, or had some come `back`."""
        now = self._loop.now
        self._gap(now - self._last_step, len(step.generating) - len(back))
        for sequence in back:
            self._gap_of(sequence)
        self._last_step = now
        done = self._generating.advance(1)
        for sequence, _, stop, completes in step.prompts:
            assert sequence.kv
            self._manager.commit(sequence.kv, sequence.tokens, stop)
            if completes:
                done.append(self._complete(sequence))
        self._look_at(done)
        work = step.prompt_work(self._setup.attention_tokens)
        self._rates.step(step.prompt_tokens, len(step.generating), seconds, work)
        self._begin()

    def _complete(self, sequence: Sequence) -> tuple[Sequence, Visit]:
        """All tokens that it had are computed, so it has one more."""
        visit = self._visits[sequence]
        if sequence.times.last_token is None:
            self._listener.first_token(visit)
        else:
            self._gap_of(sequence)
        sequence.times.last_token = self._loop.now
        visit.length += 1
        return sequence, visit

    def _look_at(self, done: list[tuple[Sequence, Visit]]) -> None:
        """All that generate have a token more; of those `done` it is the first, or the last."""
        ended: list[tuple[Sequence, Visit]] = []
        begin: list[tuple[Sequence, Visit]] = []
        for sequence, visit in done:
            ends = self._booking.look_at(sequence, visit)
            (ended if ends else begin).append((sequence, visit))
        generating = self._generating
        for sequence, visit in ended:
            if sequence in generating:
                generating.end(sequence)
            self._scheduler.remove(sequence)
            del self._visits[sequence]
            visit.preemptions = sequence.preemptions
            self._listener.ended(visit)
        if not (self._booking.take(0) or self._booking.take_in_turn()):
            # NOTE: so that who has to give up its blocks now has all that it generated cached.
            generating.settle()
            self._booking.book_all(self._visits.items())
        for sequence, visit in begin:
            generating.join(sequence, visit)

    def _take(self, steps: int) -> None:
        """The blocks for what is computed by the end of so many steps more of a leap."""
        taken = self._booking.take(steps - 1)
        assert taken, "a leap went beyond the memory"

    def _gap_of(self, sequence: Sequence) -> None:
        """Between the last token of one that was away, and the one that it has now."""
        assert sequence.times.last_token is not None
        self._gap(self._loop.now - sequence.times.last_token, 1)

    def _gap(self, seconds: float, times: int) -> None:
        if times:
            self._rates.gap(seconds, times)
            self.gaps[round(seconds / GAP_UNIT)] += times

    def _most_steps(self) -> int:
        """So many steps can follow each other before a sequence ends or memory may be short."""
        generating = self._generating
        # NOTE: each sequence has room for the first step, and starts a block once in `size` more.
        size = self._setup.block_size
        within = 1 + self._blocks_for_leap() // len(generating) * size
        in_time = self._time.generations_in(len(generating), generating.context, MOST_LEAP_SECONDS)
        return min(generating.tokens_left, within, in_time)

    def _blocks_for_leap(self) -> int:
        """That nobody misses: what is evicted of those who wait may decide who is next."""
        manager, waiting = self._manager, self._scheduler.waiting
        full = self.running == self._setup.max_running
        if full or all(manager.protected(each.tokens) >= each.cached_hint for each in waiting):
            return manager.spare_blocks
        return manager.stats().free_blocks

    def _fly(self, leap: Leap) -> None:
        self._leap = leap
        self._loop.call_at(leap.ends, partial(self._land, leap))

    def _cut(self, leap: Leap) -> None:
        """End with the step that is under way. Until that, all steps have their blocks."""
        steps = leap.steps_by(self._loop.now)
        self._take(steps)
        if steps < leap.steps:
            self._fly(replace(leap, steps=steps))

    def _land(self, leap: Leap) -> None:
        """The end of a leap, unless it was cut."""
        if leap is not self._leap:
            return
        self._leap = None
        self._last_step = leap.ends
        seconds = leap.ends - leap.began
        self.busy_seconds += seconds
        self.steps += leap.steps
        step_seconds = seconds / leap.steps
        self._rates.generations(leap.generations, step_seconds, leap.steps)
        self._gap(step_seconds, leap.generations * leap.steps)
        self._take(leap.steps)
        self._look_at(self._generating.advance(leap.steps))
        self._begin()
