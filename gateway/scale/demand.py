"""The demand on each pool: what this gateway counts, what all have counted, what that asks for."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from radixgate.v1.demand_pb2 import Demand

from gateway.fleet.fleet import Fleet
from gateway.fleet.worker import FleetWorker
from gateway.scale.signals import Signals, read
from gateway.scale.tally import Tally, count
from gateway.scale.window import Entry, Spans, Window


class Waiting(NamedTuple):
    """Requests that wait at this gateway. Args: how many; how long so far, in all, in seconds."""

    requests: int
    seconds: float


class PoolDemand:
    """Of one pool. Args: `gateway` names this life of this gateway; `spans` of time that count.

    Attributes: `tally` of this gateway; `window` of all; `last_id` that was read of the stream.
    """

    def __init__(self, gateway: str, spans: Spans) -> None:
        self.tally = Tally(gateway)
        self.window = Window(spans)
        self.last_id = ""
        self._gateway = gateway
        self._alone = 0

    def add(self, at: float, demand: Demand) -> None:
        """All have heard this."""
        if demand.gateway != self._gateway or demand.number > self._alone:
            self.window.add(Entry(at, demand))

    def add_alone(self, at: float, demand: Demand) -> None:
        """The others have not heard this of us, nor we of them."""
        self._alone = demand.number
        self.window.add(Entry(at, demand), complete=False)


class Demands:
    """Of all pools. Attributes: `spans`.

    Args:
        gateway: names this life of this gateway.
        fleet: the workers.
        size_of: how many workers of a model there are or are about to be, besides those that
            could take a request.
        waiting_of: what waits here for a model.
        clock: the fleet's, in seconds.
        epoch: what to add to that for the clock of Redis, until that is known.
        spans: of time that count.
    """

    def __init__(
        self,
        gateway: str,
        fleet: Fleet,
        *,
        size_of: Callable[[str], int],
        waiting_of: Callable[[str], Waiting],
        clock: Callable[[], float],
        epoch: float,
        spans: Spans,
    ) -> None:
        self._gateway = gateway
        self._fleet = fleet
        self._size_of = size_of
        self._waiting_of = waiting_of
        self._clock = clock
        self._epoch = epoch
        self.spans = spans
        self._pools: dict[str, PoolDemand] = {}

    def __iter__(self) -> Iterator[PoolDemand]:
        return iter(self._pools.values())

    def pool(self, model: str) -> PoolDemand:
        """What is counted of `model`."""
        pool = self._pools.get(model)
        if pool is None:
            pool = self._pools[model] = PoolDemand(self._gateway, self.spans)
        return pool

    def tally(self, model: str) -> Tally:
        """What this gateway counts of `model`."""
        return self.pool(model).tally

    def take(self, model: str) -> Demand:
        """What this gateway has counted of `model` since it was asked before."""
        waiting = self._waiting_of(model)
        return self.tally(model).take(self._ready(model), waiting.requests, waiting.seconds)

    def signals(self, model: str) -> Signals:
        """What the demand on `model` says now."""
        pool = self._pools.get(model)
        window = Window(self.spans) if pool is None else pool.window
        signals = read(window, count(self._ready(model)), self._size_of(model), self.now())
        # NOTE: who waits here is not in any entry yet.
        return replace(signals, waiting=max(signals.waiting, self._waiting_of(model).requests))

    def values(self, model: str) -> dict[str, float]:
        """What the cache of each worker of `model` has been worth lately, by the worker's id.

        In prompt tokens a second that it had cached, on an average that forgets half in half of
        `--demand-window`, of all gateways together; never below 0. Who has served nothing in all
        of it is left out, and has the value 0. Gateways that can use Redis say the same, 2 s late
        at most.
        """
        pool = self._pools.get(model)
        return {} if pool is None else pool.window.values(self.now())

    def now(self) -> float:
        """On the clock of Redis, in seconds."""
        return self._clock() + self._epoch

    def set_now(self, now: float) -> None:
        """The clock of Redis shows this."""
        self._epoch = now - self._clock()

    def _ready(self, model: str) -> list[FleetWorker]:
        return self._fleet.candidates(model)
