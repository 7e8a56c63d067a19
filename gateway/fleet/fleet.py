"""The fleet: every worker of every pool, kept current by the pools' events.

No I/O: events come from `gateway.summary`, checked model cards from `gateway.fleet.admission`, and
the clock is passed in. A worker leaves only by a Departed event; `expired` says whose lease passed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from radixgate.v1.worker_pb2 import ModelCard

from gateway.fleet.discovery.endpoints import Endpoint
from gateway.fleet.discovery.roster import Listing, Place, Roster
from gateway.fleet.trust import Belief, SyncState, Trust
from gateway.fleet.worker import FleetWorker, Life
from gateway.summary.events import (
    Departed,
    Detached,
    Event,
    Loaded,
    Registered,
    Registration,
)


class Expired(NamedTuple):
    """A life whose lease passed without news: the Departed event to publish, and its pool."""

    model: str
    event: Departed


class Fleet:
    """Args: `lease` in seconds; `clock`, monotonic seconds."""

    def __init__(self, lease: float, clock: Callable[[], float]) -> None:
        self._lease = lease
        self._clock = clock
        self._pools: defaultdict[str, dict[str, FleetWorker]] = defaultdict(dict)
        self._frozen: set[str] = set()
        self._roster: Roster | None = None

    def __iter__(self) -> Iterator[FleetWorker]:
        for pool in self._pools.values():
            yield from pool.values()

    def models(self) -> list[str]:
        """Models that have workers, by name."""
        return sorted(model for model, pool in self._pools.items() if pool)

    def workers(self, model: str) -> list[FleetWorker]:
        """All workers of `model` in the order in which they came, lost ones too."""
        return list(self._pools.get(model, {}).values())

    def get(self, model: str, worker: str) -> FleetWorker | None:
        """The current life of one worker."""
        return self._pools.get(model, {}).get(worker)

    def candidates(self, model: str) -> list[FleetWorker]:
        """Workers that may be sent a request now: known card, not closed, not lost."""
        now = self._clock()
        return [
            worker
            for worker in self.workers(model)
            if worker.card is not None
            and not worker.closed
            and worker.belief(now).trust is not Trust.LOST
        ]

    def card(self, model: str) -> ModelCard | None:
        """A checked card of the pool, the same for all its workers in what tokenizing needs."""
        return next((worker.card for worker in self.workers(model) if worker.card), None)

    def addresses(self) -> set[str]:
        """Where the workers serve."""
        return {worker.address for worker in self}

    def observe(self, model: str, event: Event) -> None:
        """Take one event of the pool of `model`; an older life than the current one is ignored."""
        pool = self._pools[model]
        known = pool.get(event.worker)
        if known is not None and event.epoch < known.epoch:
            return
        if isinstance(event, Registered):
            pool[event.worker] = self._joined(known, event)
        elif known is None or known.epoch != event.epoch:
            return
        elif isinstance(event, Departed):
            del pool[event.worker]
        else:
            pool[event.worker] = self._heard(known, event)

    def admit(self, registration: Registration, card: ModelCard) -> None:
        """`card` of this life was checked: the worker may be a candidate."""
        self._update(registration, card=card, problem="")

    def refuse(self, registration: Registration, problem: str) -> None:
        """The life cannot be used, for the reason given."""
        self._update(registration, card=None, problem=problem)

    def doubt(self, life: Life, doubt: Belief | None) -> None:
        """What its record leaves of the belief in the summary of `life`, if that is current."""
        known = self.get(life.model, life.worker)
        if known is not None and known.epoch == life.epoch and known.doubt != doubt:
            self._pools[life.model][life.worker] = replace(known, doubt=doubt)

    def list_pods(self, endpoints: Mapping[str, Endpoint]) -> list[FleetWorker]:
        """Take which pods there are, by UID; the workers whose pod has gone since the last time."""
        self._roster = Roster(endpoints)
        gone = []
        for pool in self._pools.values():
            for worker in list(pool.values()):
                place = self._place(worker.registration, worker.place)
                if place != worker.place:
                    pool[worker.id] = moved = replace(worker, place=place)
                    if place is not None and place.listing is Listing.GONE:
                        gone.append(moved)
        return gone

    def unreported(self) -> list[Endpoint]:
        """Pods that are listed and in which no worker is known."""
        if self._roster is None:
            return []
        places = [worker.place for worker in self if worker.place is not None]
        known = {place.endpoint.uid for place in places if place.endpoint is not None}
        return [pod for uid, pod in self._roster.endpoints.items() if uid not in known]

    def freeze(self, model: str) -> None:
        """News of the pool may not arrive: leases stop, and start again at news of a worker."""
        if model not in self._frozen:
            self._frozen.add(model)
            self._set_deadlines(model, lambda _: None)

    def thaw(self, model: str) -> None:
        """News arrives again: every lease that was stopped starts anew."""
        if model in self._frozen:
            self._frozen.remove(model)
            fresh = self._clock() + self._lease
            self._set_deadlines(model, lambda deadline: fresh if deadline is None else deadline)

    def expired(self) -> list[Expired]:
        """Whose lease has passed."""
        now = self._clock()
        return [
            Expired(model, Departed(worker.id, worker.epoch))
            for model, pool in self._pools.items()
            for worker in pool.values()
            if worker.deadline is not None and worker.deadline <= now
        ]

    def _joined(self, known: FleetWorker | None, event: Registered) -> FleetWorker:
        now = self._clock()
        registration = event.registration
        # NOTE: while news may not arrive this may be an old record, which starts no lease.
        deadline = None if registration.model in self._frozen else now + self._lease
        joined = FleetWorker(registration, self._lease, heard_at=now, deadline=deadline)
        if known is not None and known.epoch == registration.epoch:
            joined = replace(
                joined,
                load=known.load,
                card=known.card,
                problem=known.problem,
                doubt=known.doubt,
                place=known.place,
            )
        else:
            joined = replace(joined, place=self._place(registration, None))
        if event.load is None:
            return joined
        return replace(joined, load=event.load, state=_state(event.synced))

    def _heard(self, known: FleetWorker, event: Event) -> FleetWorker:
        now = self._clock()
        if isinstance(event, Detached):
            # NOTE: no sign of life, so the lease runs on; it starts now if Redis had stopped it.
            deadline = now + self._lease if known.deadline is None else known.deadline
            return replace(known, state=SyncState.DETACHED, deadline=deadline)
        place = known.place
        if place is not None and self._roster is not None:
            place = self._roster.heard(known.id, known.address, place, now)
        load, state = known.load, known.state
        if isinstance(event, Loaded):
            load, state = event.load, _state(event.synced)
        deadline = now + self._lease
        return replace(known, heard_at=now, deadline=deadline, state=state, load=load, place=place)

    def _place(self, registration: Registration, before: Place | None) -> Place | None:
        if self._roster is None:
            return None
        return self._roster.place(registration.worker, registration.address, before, self._clock())

    def _update(self, registration: Registration, card: ModelCard | None, problem: str) -> None:
        known = self.get(registration.model, registration.worker)
        if known is not None and known.epoch == registration.epoch:
            pool = self._pools[registration.model]
            pool[known.id] = replace(known, card=card, problem=problem)

    def _set_deadlines(self, model: str, change: Callable[[float | None], float | None]) -> None:
        pool = self._pools[model]
        for worker in list(pool.values()):
            pool[worker.id] = replace(worker, deadline=change(worker.deadline))


def _state(synced: bool) -> SyncState:
    return SyncState.SYNCED if synced else SyncState.RESYNCING
