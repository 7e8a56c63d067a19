"""Where the reports of the workers of one model pool go, and what becomes of them.

There are two sinks: the store in Redis, and the mirror itself while Redis is away.
"""

from enum import Enum
from typing import NamedTuple, Protocol

from radixgate.v1.sync_pb2 import Delta, Hello, Load, Snapshot

from gateway.summary.events import Registration


class Verdict(Enum):
    """What became of a report."""

    OK = "OK"  # Applied now, or before.
    RESYNC = "RESYNC"  # Does not follow from the summary: a Snapshot is needed.
    UNKNOWN = "UNKNOWN"  # The worker is not registered, or not any more.


class Outcome(NamedTuple):
    """Args: `seq` of the summary afterwards; `detail` says why when the verdict is not OK."""

    verdict: Verdict
    seq: int
    detail: str = ""


class RegistrationError(Exception):
    """A worker that cannot be in the pool; the message says why."""


class StaleEpochError(RegistrationError):
    """A report of a life of the worker that is over."""

    def __init__(self, worker: str, epoch: int, newest: int) -> None:
        super().__init__(
            f"worker {worker!r}: epoch {epoch} is over, epoch {newest} has registered;"
            " do two processes use this worker id, or did the worker's clock go back?"
        )


class PoolMismatchError(RegistrationError):
    """The worker's prefix hashes cannot be compared with those of the others in its pool."""

    def __init__(self, registration: Registration, others: str) -> None:
        super().__init__(
            f"worker {registration.worker!r} has {registration.shape}, but in the pool of model"
            f" {registration.model!r} {others}; give it another model name or equal settings"
        )


class SummarySink(Protocol):
    """Where the reports of the workers of one pool go."""

    async def register(self, hello: Hello) -> Outcome:
        """Begin or continue the life in `hello`; a later life drops the summary of an earlier one.

        Raises:
            StaleEpochError: a later life has registered.
            PoolMismatchError: another worker of the pool has another shape.
        """

    async def apply(self, worker: str, epoch: int, delta: Delta) -> Outcome:
        """Apply a change. A duplicate is OK and changes nothing.

        Raises:
            StaleEpochError: a later life has registered.
            ValueError: a hash is cut off or named twice.
        """

    async def load(self, worker: str, epoch: int, load: Load) -> Outcome:
        """Take a load report, which renews the lease; RESYNC when its digest is not the summary's.

        Raises:
            StaleEpochError: a later life has registered.
        """

    async def stage(self, worker: str, epoch: int, snapshot: Snapshot) -> Outcome:
        """Take a chunk of a Snapshot; after the last one the summary is what they held together.

        Raises:
            StaleEpochError: a later life has registered.
            ValueError: a hash is cut off.
        """

    async def leave(self, worker: str, epoch: int, *, departed: bool) -> Outcome:
        """The worker's stream ended; it is gone for good if it has `departed`.

        Raises:
            StaleEpochError: a later life has registered.
        """
