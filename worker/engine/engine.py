"""The engine: an `EngineCore` in a thread of its own, behind an inbox.

The event loop never waits for a step. It submits and cancels through the inbox, and once a step all
events come back to it in one call. When the bookkeeping of the core breaks, every request ends with
an error and so does every later one: the process should be replaced.
"""

import logging
import math
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar

import torch

from worker.engine.core import EngineCore, Ticket
from worker.engine.events import End, Event, Failed
from worker.engine.output import OutputText
from worker.engine.request import Request
from worker.engine.stats import EngineLoad
from worker.kv.pins import PinRefusedError

_log = logging.getLogger(__name__)

# Being idle, the load is taken again so often, since pins end by themselves. Integrity is checked
# the first time, when it is in nobody's way.
_IDLE_SECONDS = 0.5

Sink = Callable[[Event], None]
Answer = TypeVar("Answer")


class Engine:
    """`submit`, `cancel` and all sinks belong to the one thread that `post` posts to.

    Args:
        core: only used by the engine's thread from `start` on.
        clock: the core's.
        post: runs a function in the submitting thread, soon (`loop.call_soon_threadsafe`).
        on_failure: called there once when the engine has broken.

    Attributes:
        load: after the last step, or newer; readable by any thread.
    """

    def __init__(
        self,
        core: EngineCore,
        clock: Callable[[], float],
        post: Callable[[Callable[[], None]], object],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.load: EngineLoad = core.load()
        self._core = core
        self._clock = clock
        self._post = post
        self._on_failure = on_failure
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._tickets = count()
        self._sinks: dict[Ticket, Sink] = {}
        self._asked: set[Future[Any]] = set()
        self._failure: Failed | None = None
        self._thread = Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the step it is in; requests in flight hear no more."""
        self._inbox.put(None)
        self._thread.join()

    def submit(
        self,
        request: Request,
        sink: Sink,
        seconds: float = math.inf,
        text: OutputText | None = None,
    ) -> Ticket:
        """Take a request, wanted for so many seconds; `sink` gets its events, an `End` last.

        `text`: as in `EngineCore.add`.
        """
        ticket = next(self._tickets)
        self._sinks[ticket] = sink
        if self._failure:
            self._deliver([(ticket, self._failure)])
        else:
            now = self._clock()
            self._inbox.put(partial(self._core.add, ticket, request, now, now + seconds, text))
        return ticket

    def ask(self, question: Callable[[EngineCore], Answer]) -> Future[Answer]:
        """Have `question` answered in the engine's thread, between two steps.

        The result raises what the question raises of `PinRefusedError`, and RuntimeError when the
        engine is broken.
        """
        future: Future[Answer] = Future()
        self._asked.add(future)
        future.add_done_callback(self._asked.discard)
        if self._failure:
            future.set_exception(RuntimeError(self._failure.message))
        else:
            self._inbox.put(partial(self._answer, question, future))
        return future

    def cancel(self, ticket: Ticket) -> None:
        """Drop a request and all it holds; its sink hears no more. Harmless after its end."""
        if self._sinks.pop(ticket, None):
            self._inbox.put(partial(self._core.cancel, ticket))

    def _run(self) -> None:
        try:
            with torch.inference_mode():
                while self._receive():
                    events = self._core.step()
                    self.load = self._core.load()
                    self._post(partial(self._deliver, events))
        except BaseException as error:
            _log.critical("the engine broke", exc_info=True)
            self._post(partial(self._break, error))

    def _receive(self) -> bool:
        """Do what the inbox asks, waiting while there is nothing to compute; False to stop."""
        stale = checked = False
        while True:
            idle = self._core.idle
            if stale and self._inbox.empty():
                self.load, stale = self._core.load(), False
            try:
                command = self._inbox.get(block=idle, timeout=_IDLE_SECONDS)
            except Empty:
                if not idle:
                    return True
                if not checked:
                    self._core.check_integrity()
                stale = checked = True
                continue
            if command is None:
                return False
            command()
            stale = True

    def _answer(self, question: Callable[[EngineCore], Answer], future: Future[Answer]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            answer = question(self._core)
        except PinRefusedError as error:
            future.set_exception(error)
            return
        # NOTE: first, so that who has the answer finds it in the load.
        self.load = self._core.load()
        future.set_result(answer)

    def _deliver(self, events: list[tuple[Ticket, Event]]) -> None:
        for ticket, event in events:
            ended = isinstance(event, End)
            sink = self._sinks.pop(ticket, None) if ended else self._sinks.get(ticket)
            if sink:
                sink(event)

    def _break(self, error: BaseException) -> None:
        self._failure = Failed(f"the engine is broken: {type(error).__name__}: {error}")
        self._deliver([(ticket, self._failure) for ticket in self._sinks])
        for future in list(self._asked):
            future.set_exception(RuntimeError(self._failure.message))
        self._on_failure(error)
