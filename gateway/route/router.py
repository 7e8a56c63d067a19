"""Routing in one model pool: index → candidates → cost → reservation.

Pure: the pool's summaries and the reservations of other gateways come in as a `PoolListener`, its
workers and the clock as arguments; own reservations go out through an outbox. Gateways that know
the same choose the same.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import xxhash
from radixgate.namespace import NamespaceSeed
from radixgate.prefix import TOKEN_BYTES, BoundaryHashes, PrefixHash
from radixgate.v1.peer_pb2 import Announcement
from radixgate.work import prefill_work

from gateway.fleet.trust import Belief, Trust
from gateway.fleet.worker import FleetWorker
from gateway.route.cost import COST, CostConfig, CostTerms, Pool, cost, ranked
from gateway.route.index import PrefixIndex
from gateway.route.outcome import Promise, Watch
from gateway.route.peers import Peers
from gateway.route.reservation import Reservation
from gateway.route.reservations import Reservations, Unreported
from gateway.route.tombstones import Tombstones
from gateway.summary.outbox import Outbox

RESERVATION_LIFETIME: Final = 60.0
RESERVATION_LIMIT: Final = 10_000
PEER_SILENCE: Final = 5.0
"""Seconds; several of the heartbeats with which a gateway says that its reservations live."""
EVICTED_REMEMBERED: Final = 65_536
"""Evicted boundaries, at least: 4 million tokens at a stride of 64."""


@dataclass(frozen=True)
class Prompt:
    """A tokenized prompt in its namespace.

    Args: `packed` token ids as little-endian uint32; `stride` of the pool; `seed` of the namespace.
    """

    packed: bytes
    stride: int
    seed: NamespaceSeed

    @property
    def tokens(self) -> int:
        """Length in tokens."""
        return len(self.packed) // TOKEN_BYTES

    @cached_property
    def boundaries(self) -> BoundaryHashes:
        """Hashes of its boundaries, shortest first; made when they are asked for."""
        return BoundaryHashes(self.packed, self.stride, self.seed)

    def work(self, cached: int, attention_tokens: int) -> float:
        """Of computing what is not `cached`; the last token is computed in any case."""
        return prefill_work(min(cached, self.tokens - 1), self.tokens, attention_tokens)

    @cached_property
    def _beginning(self) -> int:
        """Of its first stride: equal for siblings."""
        view = memoryview(self.packed)[: self.stride * TOKEN_BYTES]
        return xxhash.xxh3_64_intdigest(view, self.seed)

    def affinity(self, worker: str) -> int:
        """How much `worker` is preferred among equals: the same for all siblings, everywhere.

        Prompts that begin differently prefer different workers (rendezvous hashing).
        """
        return xxhash.xxh3_64_intdigest(worker.encode(), self._beginning)


@dataclass(slots=True)
class Estimate:
    """What the gateway believes of a request on a worker.

    Args:
        worker: the candidate as it is now.
        belief: how far its summary was trusted, and why.
        matched_tokens: of the prompt, held according to its reports.
        expected_tokens: held, or expected from requests on their way.
        terms: of the cost.
        weighed_ms: the cost.
        places: for more requests, by its last report and what was reserved there since.
    """

    worker: FleetWorker
    belief: Belief
    matched_tokens: int
    expected_tokens: int
    terms: CostTerms
    weighed_ms: float
    places: int

    @property
    def believed_tokens(self) -> float:
        """Of those expected, as many as its summary's trust leaves."""
        return self.belief.weight * self.expected_tokens

    @property
    def total_ms(self) -> float:
        """The expected delay."""
        return self.terms.total_ms

    @property
    def free_blocks(self) -> int:
        """As last reported."""
        return self.worker.pressure.free_blocks


def mostly_held(prompt: Prompt, estimates: Iterable[Estimate]) -> bool:
    """Whether a worker that has a place is expected to hold more than half of `prompt`."""
    return any(2 * each.expected_tokens > prompt.tokens for each in estimates if each.places > 0)


class Router:
    """Decides for the pool that it listens to.

    Args: `outbox` for what it reserves; `config` of the cost.
    """

    def __init__(self, outbox: Outbox, config: CostConfig = COST) -> None:
        self._outbox = outbox
        self._config = config
        self._held = PrefixIndex()
        self._tombstones = Tombstones(EVICTED_REMEMBERED)
        self._reservations = Reservations(RESERVATION_LIFETIME, RESERVATION_LIMIT, self._ended)
        self._peers = Peers(self._reservations, PEER_SILENCE)
        self._promises: dict[Reservation, Promise] = {}
        self._watch = Watch()

    def stored(self, worker: str, hashes: Collection[PrefixHash]) -> None:
        """`worker` holds `hashes` from now on."""
        self._held.stored(worker, hashes)
        self._tombstones.stored(hashes)

    def removed(
        self, worker: str, hashes: Collection[PrefixHash], evicted: Collection[PrefixHash]
    ) -> None:
        """`worker` holds `hashes` no longer; those of them that are `evicted` had to make room."""
        gone = self._held.removed(worker, hashes)
        self._watch.removed(worker, hashes)
        self._tombstones.evicted(set(evicted).intersection(gone))

    def forgotten(self, worker: str, held: dict[PrefixHash, None]) -> None:
        """The life of `worker` is over, and what was on its way to it is lost.

        It held `held`, which is the router's from now on.
        """
        self._held.forgotten(worker, held)
        self._reservations.forget(worker)

    def cleared(self) -> None:
        """All that workers hold is heard again."""
        self._held = PrefixIndex()

    def reported(self, worker: str) -> None:
        """A load report of `worker` came."""
        self._reservations.reported(worker)
        self._held.clean()

    def unreported(self, worker: str) -> Unreported:
        """What this gateway knows of the load of `worker` beyond its last report."""
        return self._reservations.unreported(worker)

    def heard(self, announcement: Announcement, now: float) -> None:
        """Another gateway has announced something. `now` is on the fleet's clock."""
        self._peers.heard(announcement, now)

    def estimate(
        self, prompt: Prompt, candidates: Collection[FleetWorker], now: float
    ) -> list[Estimate]:
        """All candidates for a prompt, best first. `now` is on the fleet's clock."""
        self._reservations.expire(now)
        self._peers.expire(now)
        held = self._held.match(prompt.boundaries)
        expected = self._reservations.match(prompt.boundaries, held)
        unreported, tokens, stride = self._reservations.unreported, prompt.tokens, prompt.stride
        loads = [(worker, worker.pressure, unreported(worker.id)) for worker in candidates]
        pool = Pool.of([pressure for _, pressure, _ in loads])
        prefills = sum([pressure.prefills or there.work > 0 for _, pressure, there in loads])
        delays = self._config.delays(prefills / len(loads) if loads else 0.0)
        estimates = []
        for worker, pressure, there in loads:
            belief = worker.belief(now)
            matched = held.get(worker.id, 0)
            believed = expected.get(worker.id, 0)
            rate = pool.rate(pressure)
            terms = cost(
                tokens,
                belief.weight * believed * stride,
                pressure,
                there,
                block_size=worker.registration.block_size,
                pool=pool,
                rate=rate,
            )
            estimates.append(
                Estimate(
                    worker,
                    belief,
                    matched * stride,
                    believed * stride,
                    terms,
                    self._config.weighed_ms(terms, delays * (rate / pool.work_per_ms)),
                    pressure.places - there.requests,
                )
            )
        return ranked(estimates, lambda estimate: prompt.affinity(estimate.worker.id), self._config)

    def evicted(self, boundaries: Sequence[PrefixHash], from_index: int) -> int:
        """How many of `boundaries`, from the one at `from_index` on, were held and evicted lately.

        Where the best match of all workers ends, that is what more room would have saved. What was
        lost with a worker, or cleared, is not counted, nor what lies beyond it.
        """
        return self._tombstones.run(boundaries, from_index)

    def reserve(
        self, prompt: Prompt, chosen: Estimate, now: float, *, seen: bool = True
    ) -> Reservation:
        """Count the request on its chosen worker before that worker reports it, and say so.

        Args: the `prompt`; where it goes, the `chosen`; `now` on the fleet's clock; whether it is
            `seen` here when the prompt is computed.
        """
        worker, tokens = chosen.worker, prompt.tokens - chosen.matched_tokens
        boundaries = prompt.boundaries[chosen.matched_tokens // prompt.stride :]
        weight = prompt.work(chosen.matched_tokens, worker.pressure.attention_tokens) / max(
            1, tokens
        )
        reservation = Reservation(
            worker=worker.id,
            tokens=tokens,
            boundaries=boundaries,
            stride=prompt.stride,
            made_at=now,
            weight=weight,
            seen=seen,
            id=self._outbox.reserve(
                worker.id, worker.epoch, tokens, boundaries, prompt.stride, weight=weight
            ),
        )
        self._reservations.reserve(reservation)
        return reservation

    def promise(
        self, prompt: Prompt, estimates: Sequence[Estimate], reservation: Reservation, now: float
    ) -> Promise:
        """What the first of `estimates`, for which there is a `reservation`, is expected to hold.

        It is watched until that ends, or, if it was booked meanwhile, until it is `settled`.
        """
        chosen, *others = estimates
        held = chosen.matched_tokens // prompt.stride
        elsewhere_tokens = max(
            (each.matched_tokens for each in others if each.belief.trust is Trust.LIVE), default=0
        )
        known = max(held, elsewhere_tokens // prompt.stride)
        promise = Promise(
            life=chosen.worker.life,
            prompt_tokens=prompt.tokens,
            held_tokens=chosen.matched_tokens,
            last=prompt.boundaries[held - 1] if held else PrefixHash(0),
            expected_tokens=chosen.expected_tokens,
            elsewhere_tokens=elsewhere_tokens,
            evicted_tokens=(known + self.evicted(prompt.boundaries, known)) * prompt.stride,
            in_sync=chosen.worker.in_sync(now),
            made_at=now,
        )
        self._promises[reservation] = promise
        self._watch.begin(promise)
        return promise

    def settled(self, promise: Promise) -> None:
        """Whether it was kept is known for good. Idempotent."""
        self._watch.end(promise)

    def computed(self, reservation: Reservation) -> None:
        """The worker has computed the prompt. Idempotent."""
        self._reservations.computed(reservation)

    def release(self, reservation: Reservation) -> None:
        """The request has ended, well or badly. Idempotent."""
        self._reservations.release(reservation)

    def _ended(self, reservation: Reservation) -> None:
        if reservation.gateway:
            self._peers.ended(reservation)
        else:
            self._end_promise(self._promises.pop(reservation, None))
            self._outbox.release(reservation.id)

    def _end_promise(self, promise: Promise | None) -> None:
        if promise is not None and not promise.booked:
            promise.lapsed = True
            self._watch.end(promise)
