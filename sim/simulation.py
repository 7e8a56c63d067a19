"""One simulation: a trace, the clients that send it, a policy, and the workers it chooses from."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from random import Random
from typing import Final

from radixgate.namespace import Namespace

from gateway.route.router import Prompt
from sim.at_gateway import AtGateway
from sim.clients import Clients, ClosedLoop, OpenLoop
from sim.loop import EventLoop
from sim.policy.base import Choice, Job, Place, Policy, Site
from sim.recorder import Recorder
from sim.request import Request, Trace
from sim.sampling import Sampling
from sim.setting import Setting
from sim.truth import ObservedEvents, Truth
from sim.worker.base import Worker
from sim.worker.engine import EngineWorker
from sim.worker.fixed import FixedWorker
from sim.worker.visit import Visit
from worker.report import COALESCE_SECONDS

NETWORK_SECONDS: Final = 0.0005
"""From a gateway to a worker, and back."""


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
        self.sampling = Sampling(setting.workers)
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
        self._seed = cache(lambda tenant: Namespace("", tenant=tenant).seed())
        self._clients = self._who_sends()
        self._at_gateway = AtGateway()
        self._remaining = len(trace.requests)
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
            first = self._policy.load_seconds * (index + 1) / len(self.workers)
            self._loop.call_at(first, partial(self._report_load, index))
        self._clients.begin()
        self._sample()
        if self._remaining:
            self._loop.run()
        for worker in self.workers:
            worker.check_integrity()

    def send(self, job: Job, choice: Choice) -> None:
        """As `Site` says."""
        self._at_gateway.left(job.number, self.now)
        request = self._trace.requests[job.number]
        index = self._indexes[choice.worker]
        self.recorder.sent(job.number, index, self.now)
        visit = Visit(job, request, index, choice.expected_tokens)
        submit = partial(self.workers[index].submit, visit)
        way = NETWORK_SECONDS + self._setting.setup.request_seconds
        self._loop.call_at(self.now + way, submit)

    def refuse(self, job: Job, why: str) -> None:
        """As `Site` says."""
        self._at_gateway.left(job.number, self.now)
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

    def _worker(self, name: str) -> Worker:
        setting, events = self._setting, ObservedEvents(name, self._truth)
        known = (setting.setup, self.stride, self._loop, events, self)
        seconds = setting.service_seconds
        worker = EngineWorker(*known) if seconds is None else FixedWorker(*known, seconds=seconds)
        events.on_pending = lambda: self._loop.call_at(
            self.now + COALESCE_SECONDS, partial(self._report_change, name, worker)
        )
        return worker

    def _who_sends(self) -> Clients:
        requests, many = self._trace.requests, self._setting.closed_loop
        if many is None:
            return OpenLoop(requests, self._loop, self._arrive)
        return ClosedLoop(requests, self._loop, self._arrive, many)

    def _arrive(self, request: Request) -> None:
        job = Job(
            number=request.number,
            prompt=Prompt(request.prompt.packed(), self.stride, self._seed(request.tenant)),
            session=request.session,
            tenant=request.tenant,
            priority=request.priority,
            arrived=self.now,
        )
        self.recorder.arrived(request, self.now)
        self._at_gateway.came(request.number, self.now)
        most = self._setting.setup.kv_tokens
        if self.workers[0].needs(request) > most:
            self.refuse(job, f"longer than the KV memory of a worker, {most} tokens")
            return
        # NOTE: all are asked for in the end, and one by one each costs a pass over its prefix.
        job.prompt.boundaries[:]
        self._policy.arrived(job)

    def _over(self, number: int) -> None:
        self._remaining -= 1
        if not self._remaining:
            self._loop.end()
        self._at_gateway.over(self.now)
        self._progress()
        self._clients.over(number)

    def _report_change(self, name: str, worker: Worker) -> None:
        change = worker.events.take()
        if change is not None:
            self._tell(lambda: self._policy.changed(name, change))

    def _report_load(self, index: int) -> None:
        load, name = self.workers[index].load(), self.places[index].id
        self._tell(lambda: self._policy.loaded(name, load))
        later = self.now + self._policy.load_seconds
        self._loop.call_at(later, partial(self._report_load, index))

    def _tell(self, news: Callable[[], None]) -> None:
        self._loop.call_at(self.now + NETWORK_SECONDS, news)

    def _sample(self) -> None:
        states = [worker.state() for worker in self.workers]
        self.sampling.take(self.now, len(self._at_gateway), states)
        if not any(state.running or state.waiting for state in states):
            self._at_gateway.check(self.now)
        self._loop.call_at(self.now + self.sampling.distance, self._sample)
