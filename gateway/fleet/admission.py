"""Admission: a worker may be a candidate once this gateway has called it back and found parity.

Workers that report here are checked before they are registered; workers that other gateways have
registered are checked when their registration is seen. Equal model cards are checked once.
"""

import asyncio
import logging
from collections import OrderedDict
from typing import NamedTuple

import grpc.aio
import xxhash
from radixgate.v1.worker_pb2 import DescribeRequest, ModelCard
from radixgate.v1.worker_pb2_grpc import WorkerStub

from gateway.fleet.channels import Channels
from gateway.fleet.fleet import Fleet
from gateway.fleet.parity import ParityError, RecomputeText, check_card, check_golden
from gateway.summary.events import Departed, Event, Registered, Registration

logger = logging.getLogger(__name__)

DESCRIBE_SECONDS = 5.0
RETRY_SECONDS = 1.0
CARDS_KEPT = 16


class _Admitted(NamedTuple):
    epoch: int
    card: ModelCard


class Admission:
    """An observer of the pools, and the `Admit` of KvSync.

    Args:
        fleet: told which workers are admitted and which are refused.
        channels: to call the workers.
        recompute: the gateway's own answers to golden texts.
    """

    def __init__(self, fleet: Fleet, channels: Channels, recompute: RecomputeText) -> None:
        self._fleet = fleet
        self._channels = channels
        self._recompute = recompute
        self._admitted: dict[tuple[str, str], _Admitted] = {}
        self._learning: set[asyncio.Task[None]] = set()
        self._checked: OrderedDict[bytes, ModelCard] = OrderedDict()

    async def admit(self, registration: Registration) -> None:
        """Check a life of a worker, unless it was checked before.

        Raises:
            ParityError: it and this gateway disagree.
            ConnectionError: it cannot be called at its address.
        """
        await self._obtain(registration)

    def observe(self, model: str, event: Event) -> None:
        """Take one event of the pool of `model`, after the fleet has."""
        if isinstance(event, Departed):
            admitted = self._admitted.get((model, event.worker))
            if admitted is not None and admitted.epoch <= event.epoch:
                del self._admitted[model, event.worker]
        elif isinstance(event, Registered):
            card = self._card(event.registration)
            if card is not None:
                self._fleet.admit(event.registration, card)
            else:
                self._learn(event.registration)

    async def close(self) -> None:
        """Stop checking."""
        for task in self._learning:
            task.cancel()
        await asyncio.gather(*self._learning, return_exceptions=True)

    def _card(self, registration: Registration) -> ModelCard | None:
        admitted = self._admitted.get((registration.model, registration.worker))
        if admitted is None or admitted.epoch != registration.epoch:
            return None
        return admitted.card

    async def _obtain(self, registration: Registration) -> ModelCard:
        card = self._card(registration)
        if card is None:
            card = await self._inspect(registration)
            key = (registration.model, registration.worker)
            self._admitted[key] = _Admitted(registration.epoch, card)
        return card

    def _learn(self, registration: Registration) -> None:
        name = f"admission of {registration}"
        if all(task.get_name() != name for task in self._learning):
            task = asyncio.create_task(self._admit_when_reachable(registration), name=name)
            self._learning.add(task)
            task.add_done_callback(self._learning.discard)

    async def _admit_when_reachable(self, registration: Registration) -> None:
        while self._is_current(registration):
            try:
                card = await self._obtain(registration)
            except ParityError as error:
                logger.warning("not a candidate: %s", error)
                self._fleet.refuse(registration, str(error))
                return
            except ConnectionError as error:
                self._fleet.refuse(registration, str(error))
            else:
                self._fleet.admit(registration, card)
                return
            await asyncio.sleep(RETRY_SECONDS)

    def _is_current(self, registration: Registration) -> bool:
        worker = self._fleet.get(registration.model, registration.worker)
        return worker is not None and worker.registration == registration

    async def _inspect(self, registration: Registration) -> ModelCard:
        worker = WorkerStub(self._channels.get(registration.address))
        try:
            card = await worker.Describe(
                DescribeRequest(), timeout=DESCRIBE_SECONDS, wait_for_ready=True
            )
        except grpc.aio.AioRpcError as error:
            raise ConnectionError(
                f"worker {registration.worker!r} says it serves at {registration.address}, but"
                f" Worker.Describe fails there: {error.code().name} {error.details()}"
            ) from error
        check_card(registration, card)
        return await self._check_once(registration, card)

    async def _check_once(self, registration: Registration, card: ModelCard) -> ModelCard:
        card.ClearField("worker")
        card.ClearField("epoch")
        digest = xxhash.xxh3_128_digest(card.SerializeToString(deterministic=True))
        if digest not in self._checked:
            await asyncio.to_thread(check_golden, registration, card, self._recompute)
            self._checked[digest] = card
            if len(self._checked) > CARDS_KEPT:
                self._checked.popitem(last=False)
        return self._checked[digest]
