"""One simulation: a trace, the clients that send it, a policy, and the workers it chooses from."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from radixgate.namespace import Namespace, NamespaceSeed

from gateway.route.router import Prompt
from sim.fixed import FixedWorker
from sim.hardware.setup import WorkerSetup
from sim.loop import EventLoop
from sim.policy.base import Choice, Job, Place, Policy, Site
from sim.recorder import Recorder
from sim.request import Request, Trace
from sim.truth import ObservedEvents, Truth
from sim.visit import Visit
from sim.worker import SimWorker
from worker.report import COALESCE_SECONDS, LOAD_SECONDS

NETWORK_SECONDS: Final = 0.0005
"""From a gateway to a worker, and back."""

PATIENCE_SECONDS: Final = 600.0
"""For so long at most a policy keeps requests while nothing else happens."""

SAMPLES: Final = 300
"""Of the state of all workers in a run, so many to twice as many, however long it takes."""

FIRST_SAMPLE_SECONDS: Final = 0.01
"""From one sample to the next, until there are too many."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How a trace is played.

    Args:
        setup: of every worker.
        workers: how many there are.
        stride: tokens from one boundary to the next.
        seed: of all that is left to chance.
        closed_loop: keep so many requests under way, whatever their times; None follows the times.
        service_seconds: each request takes so long, whatever it is; None asks the setup.
    """

    setup: WorkerSetup
    workers: int
    stride: int
    seed: int = 0
    closed_loop: int | None = None
    service_seconds: float | None = None


class Simulation:
    """A `Site` for the policy and a `Listener` for the workers.

    Args:
        trace: what is asked.
        setting: see there.
        policy: makes the policy for this site.
        progress: told of each request that has ended.
    """

    def __init__(
        self,
        trace: Trace,
        setting: Setting,
        policy: Callable[[Site], Policy],
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        self.stride = setting.stride
        self.rng = Random(setting.seed)
        self.recorder = Recorder(len(trace.requests), setting.workers)
        self._trace = trace
        self._setting = setting
        self._progress = progress
        self._loop = EventLoop()
        self._truth = Truth()
        setup = setting.setup
        self.places: Sequence[Place] = [
            Place(f"worker-{index}", setup.num_blocks, setup.block_size, setup.max_running)
            for index in range(setting.workers)
        ]
        self.workers = [self._worker(place.id) for place in self.places]
        self._indexes = {place.id: index for index, place in enumerate(self.places)}
        self._seeds: dict[str, NamespaceSeed] = {}
        self._followers: defaultdict[int, list[Request]] = defaultdict(list)
        self._at_gateway: set[int] = set()
        self._last_news = 0.0
        self._unsent: Iterator[Request] = iter(())
        self._remaining = len(trace.requests)
        self._sample_seconds = FIRST_SAMPLE_SECONDS
        self._policy = policy(self)

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self._loop.now

    def run(self) -> None:
        """Play the whole trace. Once.

        Raises:
            RuntimeError: the policy keeps a request for ever, or sends or refuses one twice.
        """
        for index in range(len(self.workers)):
            self._policy.loaded(self.places[index].id, self.workers[index].load())
            first = LOAD_SECONDS * (index + 1) / len(self.workers)
            self._loop.call_at(first, partial(self._report_load, index))
        self._begin_clients()
        self._sample()
        self._loop.run(until=lambda: not self._remaining)
        for worker in self.workers:
            worker.check_integrity()

    def send(self, job: Job, choice: Choice) -> None:
        """As `Site` says."""
        self._leave_gateway(job)
        request = self._trace.requests[job.number]
        index = self._indexes[choice.worker]
        self.recorder.sent(job.number, index, self.now)
        visit = Visit(job, request, index, choice.expected_tokens)
        submit = partial(self.workers[index].submit, visit)
        self._loop.call_at(self.now + NETWORK_SECONDS, submit)

    def refuse(self, job: Job, why: str) -> None:
        """As `Site` says."""
        self._leave_gateway(job)
        self.recorder.refused(job.number, why)
        self._over(job.number)

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        """As `Site` says."""
        self._loop.call_at(when, callback)

    def started(self, visit: Visit, cached_tokens: int) -> None:
        """As `Listener` says."""
        job, name = visit.job, self.places[visit.worker].id
        fates = self._truth.fates(
            name,
            job.prompt.boundaries,
            self.stride,
            prompt_tokens=job.prompt.tokens,
            cached=cached_tokens,
            expected=visit.expected_tokens,
        )
        self.recorder.started(job.number, fates, self.now)
        self._tell(lambda: self._policy.started(job, name, cached_tokens))

    def first_token(self, visit: Visit) -> None:
        """As `Listener` says."""
        job, name = visit.job, self.places[visit.worker].id
        self.recorder.first_token(job.number, self.now)
        self._tell(lambda: self._policy.first_token(job, name))

    def ended(self, visit: Visit) -> None:
        """As `Listener` says."""
        job, name = visit.job, self.places[visit.worker].id
        self.recorder.ended(visit, self.now)
        self._tell(lambda: self._policy.ended(job, name))
        self._over(job.number)

    def _worker(self, name: str) -> SimWorker | FixedWorker:
        events = ObservedEvents(name, self._truth)
        setting = self._setting
        worker: SimWorker | FixedWorker
        if setting.service_seconds is None:
            worker = SimWorker(setting.setup, self.stride, self._loop, events, self)
        else:
            worker = FixedWorker(
                setting.setup,
                self.stride,
                self._loop,
                events,
                self,
                seconds=setting.service_seconds,
            )
        events.on_pending = lambda: self._loop.call_at(
            self.now + COALESCE_SECONDS, partial(self._report_change, name, worker)
        )
        return worker

    def _report_change(self, name: str, worker: SimWorker | FixedWorker) -> None:
        change = worker.events.take()
        if change is not None:
            self._tell(lambda: self._policy.changed(name, change))

    def _report_load(self, index: int) -> None:
        load, name = self.workers[index].load(), self.places[index].id
        self._tell(lambda: self._policy.loaded(name, load))
        self._loop.call_at(self.now + LOAD_SECONDS, partial(self._report_load, index))

    def _tell(self, news: Callable[[], None]) -> None:
        self._loop.call_at(self.now + NETWORK_SECONDS, news)

    def _leave_gateway(self, job: Job) -> None:
        if job.number not in self._at_gateway:
            raise RuntimeError(
                f"the policy sends or refuses a request twice: request {job.number} is not at the "
                f"gateway"
            )
        self._at_gateway.remove(job.number)
        self._last_news = self.now

    def _sample(self) -> None:
        states = [worker.state() for worker in self.workers]
        if self.recorder.sample(self.now, states) > 2 * SAMPLES:
            self.recorder.thin()
            self._sample_seconds *= 2
        idle = not any(running or waiting for running, waiting, _ in states)
        if idle and self._at_gateway and self.now > self._last_news + PATIENCE_SECONDS:
            kept = len(self._at_gateway)
            raise RuntimeError(
                f"at {self.now:.0f} s the policy keeps {kept} request{'s' if kept > 1 else ''} "
                f"while all workers are idle, and has for {PATIENCE_SECONDS:.0f} s"
            )
        self._loop.call_at(self.now + self._sample_seconds, self._sample)

    def _begin_clients(self) -> None:
        requests = self._trace.requests
        if self._setting.closed_loop is not None:
            self._unsent = iter(requests)
            for _ in range(self._setting.closed_loop):
                self._send_next()
            return
        for request in requests:
            if request.after is not None:
                self._followers[request.after].append(request)
        self._unsent = (request for request in requests if request.after is None)
        self._wait_for_next()

    def _send_next(self) -> None:
        """In a closed loop: the next request takes the place of one that ended."""
        request = next(self._unsent, None)
        if request is not None:
            self._arrive(request)

    def _wait_for_next(self) -> None:
        request = next(self._unsent, None)
        if request is not None:
            self._loop.call_at(request.at, partial(self._arrive_in_time, request))

    def _arrive_in_time(self, request: Request) -> None:
        self._arrive(request)
        self._wait_for_next()

    def _arrive(self, request: Request) -> None:
        prompt = Prompt(request.prompt.packed(), self.stride, self._seed(request.tenant))
        job = Job(
            number=request.number,
            prompt=prompt,
            session=request.session,
            tenant=request.tenant,
            priority=request.priority,
            arrived=self.now,
        )
        self.recorder.arrived(request, self.now)
        self._at_gateway.add(request.number)
        self._last_news = self.now
        most = self._setting.setup.kv_tokens
        needed = prompt.tokens + request.output_tokens
        if needed > most:
            self.refuse(job, f"longer than the KV memory of a worker, {most} tokens")
            return
        self._policy.arrived(job)

    def _over(self, number: int) -> None:
        self._remaining -= 1
        self._last_news = self.now
        self._progress()
        if self._setting.closed_loop is not None:
            self._loop.call_at(self.now, self._send_next)
        for request in self._followers.pop(number, ()):
            when = max(request.at, self.now + request.think)
            self._loop.call_at(when, partial(self._arrive, request))

    def _seed(self, tenant: str) -> NamespaceSeed:
        if tenant not in self._seeds:
            self._seeds[tenant] = Namespace("", tenant=tenant).seed()
        return self._seeds[tenant]
