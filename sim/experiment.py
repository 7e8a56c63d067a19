"""Several simulations, in several processes: they share nothing but their traces."""

import multiprocessing
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

from sim.ideal import ideal_cached
from sim.policy.catalogue import policy
from sim.request import Trace
from sim.results import Ints, Run
from sim.run import simulate
from sim.setting import Setting

_POLL_SECONDS: Final = 0.2
_TELL_EVERY: Final = 64


@dataclass(frozen=True, slots=True)
class Case:
    """One simulation.

    Args:
        trace: its place among the traces.
        policy: as `sim.policy.catalogue` names it.
        setting: of workers and clients.
        speed: by which the times of the trace are divided.
        labels: what distinguishes it, for people.
    """

    trace: int
    policy: str
    setting: Setting
    speed: float = 1.0
    labels: dict[str, str] = field(default_factory=dict)


def play(
    traces: Sequence[Trace],
    cases: Sequence[Case],
    jobs: int,
    tell: Callable[[int], None] = lambda _: None,
) -> list[Run]:
    """The runs of `cases`, in their order.

    Args:
        traces: what they play.
        cases: see there.
        jobs: how many at once, each in its own process; with 1 they are played in this one.
        tell: told of so many requests that have ended, now and then.

    Raises:
        BrokenProcessPool: a process was killed, by want of memory for instance.
        RuntimeError: as `Simulation.run`, as soon as one run has it. No process is left then.
    """
    if jobs == 1 or len(cases) <= 1:
        player = _Player(traces)
        return [player.play(case, tell) for case in cases]
    context = multiprocessing.get_context("spawn")
    ended, others = context.Value("Q", 0), multiprocessing.active_children()
    # NOTE: in a file, since a process is not made before it has read all that it is given.
    with NamedTemporaryFile() as file:
        pickle.dump(traces, file)
        file.flush()
        pool = ProcessPoolExecutor(min(jobs, len(cases)), context, _begin, (file.name, ended))
        try:
            with _without_interrupts():
                runs = [pool.submit(_play, case) for case in cases]
            for more in _watched(runs, ended):
                tell(more)
            return [run.result() for run in runs]
        finally:
            for process in multiprocessing.active_children():
                if process not in others:
                    process.terminate()
            pool.shutdown(cancel_futures=True)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """A Ctrl-C does nothing meanwhile, nor ever to processes that begin meanwhile.

    It strikes all processes, and only the first has something to say of it, and ends the others.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _Player:
    """Plays cases over `traces`."""

    def __init__(self, traces: Sequence[Trace]) -> None:
        self._traces = traces
        self._ideal = cache(self._find_ideal)

    def play(self, case: Case, tell: Callable[[int], None]) -> Run:
        trace = self._traces[case.trace]
        counted = 0

        def count() -> None:
            nonlocal counted
            counted += 1
            if counted == _TELL_EVERY:
                tell(counted)
                counted = 0

        run = simulate(
            trace if case.speed == 1 else trace.faster(case.speed),
            case.setting,
            policy(case.policy),
            name=case.policy,
            ideal=self._ideal(case.trace, case.setting.setup.block_size),
            labels=case.labels,
            progress=count,
        )
        tell(counted)
        return run

    def _find_ideal(self, trace: int, block_size: int) -> Ints:
        return ideal_cached(self._traces[trace], block_size)


_player: _Player
_ended: "Synchronized[int]"


def _begin(traces: str, ended: "Synchronized[int]") -> None:
    """In a new process."""
    global _player, _ended
    _player, _ended = _Player(pickle.loads(Path(traces).read_bytes())), ended


def _play(case: Case) -> Run:
    return _player.play(case, _tell)


def _tell(more: int) -> None:
    with _ended.get_lock():
        _ended.value += more


def _watched(runs: "list[Future[Run]]", ended: "Synchronized[int]") -> Iterator[int]:
    """How many requests have ended since the last time, until all `runs` are done.

    Raises what the first that fails raises.
    """
    told, open_ = 0, set(runs)
    while open_:
        done, open_ = wait(open_, _POLL_SECONDS, return_when=FIRST_COMPLETED)
        now = ended.value
        yield now - told
        told = now
        for run in done:
            run.result()
