"""What a routing policy sees and does in the simulator.

A policy gets what a gateway in its place would get, at the time at which that would: requests,
the messages of workers about them, and their reports. It does not see what is going to be: how long
an answer gets is not in a `Job`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Protocol

from radixgate.v1.sync_pb2 import Load

from gateway.route.router import Prompt
from worker.kv.events import Change
from worker.report import LOAD_SECONDS


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A request at the gateway.

    Args:
        number: of its request in the trace.
        prompt: tokens and, when asked for, hashes of its boundaries.
        session: whose it is; "" when the client does not say.
        tenant: with whom it shares cached context.
        priority: higher goes first.
        arrived: when it came, in virtual seconds.
    """

    number: int
    prompt: Prompt
    session: str
    tenant: str
    priority: int
    arrived: float


class Place(NamedTuple):
    """A worker, as a gateway knows it from the start: its `id`, and what it can hold."""

    id: str
    num_blocks: int
    block_size: int
    max_running: int


class Choice(NamedTuple):
    """Args: the `worker`; how many tokens of the prompt are expected to be cached there, as far as
    the policy has a view of that.
    """

    worker: str
    expected_tokens: int = 0


class Site(Protocol):
    """Where a policy works.

    Attributes: `places`, all workers; `stride`, tokens from one boundary of prompts to the next;
    `rng`, the only source of chance.
    """

    places: Sequence[Place]
    stride: int
    rng: Random

    @property
    def now(self) -> float:
        """Virtual seconds."""

    def send(self, job: Job, choice: Choice) -> None:
        """To the worker that was chosen; once for each job."""

    def refuse(self, job: Job, why: str) -> None:
        """Instead of sending it."""

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        """At the virtual time `when`, which is not past."""


class Policy(ABC):
    """Args: the `site`. What `started` and the others tell may be ignored.

    Attributes: `load_seconds`, from one load report of a worker to its next.
    """

    load_seconds: float = LOAD_SECONDS

    def __init__(self, site: Site) -> None:
        self.site = site

    def arrived(self, job: Job) -> None:
        """A request came. It is sent now, or later, or refused."""
        self.site.send(job, self.choose(job))

    @abstractmethod
    def choose(self, job: Job) -> Choice:
        """The worker for `job`, which is going to be sent there now."""

    def started(self, job: Job, worker: str, cached_tokens: int) -> None:
        """The worker has begun with the prompt, of which it found so much cached."""

    def first_token(self, job: Job, worker: str) -> None:
        """The worker has computed the prompt."""

    def ended(self, job: Job, worker: str) -> None:
        """The answer is complete."""

    def changed(self, worker: str, change: Change) -> None:
        """A report came of what the worker stores and evicts: its boundaries, by hash."""

    def loaded(self, worker: str, load: Load) -> None:
        """A load report came; every `load_seconds`, and one before the first request."""
