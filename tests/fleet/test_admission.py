"""Admission and channels with workers that answer Describe on real ports."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc.aio
import pytest
from radixgate.v1.worker_pb2 import DescribeRequest, Golden, ModelCard
from radixgate.v1.worker_pb2_grpc import WorkerServicer, WorkerStub, add_WorkerServicer_to_server

from gateway.fleet.admission import Admission
from gateway.fleet.channels import Channels
from gateway.fleet.fleet import Fleet
from gateway.fleet.parity import ParityError
from gateway.fleet.trust import Trust
from gateway.summary.events import Departed, Registered, Registration
from tests.fleet.cards import card_of, recompute
from tests.summary.valkey import eventually
from tests.summary.values import MODEL, registration

pytestmark = pytest.mark.slow


class DescribedWorker(WorkerServicer):
    """Only describes itself."""

    def __init__(self) -> None:
        self.card = ModelCard()
        self.described = 0
        self.delay = 0.0

    async def Describe(self, request: DescribeRequest, context: object) -> ModelCard:
        self.described += 1
        await asyncio.sleep(self.delay)
        return self.card

    Generate = Drain = None


class Setup:
    def __init__(self) -> None:
        self.now = 0.0
        self.fleet = Fleet(5.0, lambda: self.now)
        self.channels = Channels()
        self.recomputed = 0
        self.admission = Admission(self.fleet, self.channels, self.recompute)

    def recompute(self, card: ModelCard) -> Golden:
        self.recomputed += 1
        return recompute(card)

    def see(self, event: Registered | Departed) -> None:
        self.fleet.observe(MODEL, event)
        self.admission.observe(MODEL, event)


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    it = Setup()
    yield it
    await it.admission.close()
    await it.channels.close()


@asynccontextmanager
async def described(name: str, epoch: int) -> AsyncIterator[tuple[Registration, DescribedWorker]]:
    server, worker = grpc.aio.server(), DescribedWorker()
    add_WorkerServicer_to_server(worker, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    announced = registration(name, epoch, address=f"127.0.0.1:{port}")
    worker.card.CopyFrom(card_of(announced))
    yield announced, worker
    await server.stop(0)


async def test_a_worker_that_reports_here_is_described_once(setup: Setup) -> None:
    async with described("a", 1) as (announced, worker):
        await setup.admission.admit(announced)
        setup.see(Registered(announced, 0))
        await setup.admission.admit(announced)
        assert [it.id for it in setup.fleet.candidates(MODEL)] == ["a"]
        assert worker.described == 1


async def test_a_worker_that_another_gateway_registered_is_learned(setup: Setup) -> None:
    async with described("a", 1) as (announced, _):
        setup.see(Registered(announced, 0))
        assert setup.fleet.candidates(MODEL) == []
        await eventually(lambda: bool(setup.fleet.candidates(MODEL)), "the worker to be admitted")


async def test_equal_cards_are_checked_once_and_shared(setup: Setup) -> None:
    async with described("a", 1) as (a, _), described("b", 5) as (b, _):
        for announced in (a, b):
            await setup.admission.admit(announced)
            setup.see(Registered(announced, 0))
        first, second = setup.fleet.candidates(MODEL)
        assert first.card is second.card
        assert setup.recomputed == 1


async def test_a_worker_without_parity_is_refused_by_hello_and_lost_by_registration(
    setup: Setup,
) -> None:
    async with described("a", 1) as (announced, worker):
        worker.card.golden.tokenized[0].ids[0] += 1
        with pytest.raises(ParityError, match="token ids"):
            await setup.admission.admit(announced)
        setup.see(Registered(announced, 0))
        await eventually(
            lambda: setup.fleet.workers(MODEL)[0].belief(setup.now).trust is Trust.LOST,
            "the worker to be refused",
        )
        assert "token ids" in setup.fleet.workers(MODEL)[0].problem
        assert setup.fleet.candidates(MODEL) == []


async def test_an_address_where_no_worker_is(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.fleet.admission.DESCRIBE_SECONDS", 0.1)
    with pytest.raises(ConnectionError, match=r"'a' says it serves at 127\.0\.0\.1:1, but"):
        await setup.admission.admit(registration("a", 1))


async def test_an_unreachable_worker_is_tried_again(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.fleet.admission.DESCRIBE_SECONDS", 0.1)
    monkeypatch.setattr("gateway.fleet.admission.RETRY_SECONDS", 0.01)
    async with described("a", 1) as (announced, worker):
        card = worker.card
        worker.card = ModelCard()
        worker.delay = 1.0
        setup.see(Registered(announced, 0))
        await eventually(lambda: bool(setup.fleet.workers(MODEL)[0].problem), "the first failure")
        worker.card, worker.delay = card, 0.0
        await eventually(lambda: bool(setup.fleet.candidates(MODEL)), "the worker to be admitted")
        assert setup.fleet.workers(MODEL)[0].problem == ""


async def test_a_departed_worker_is_described_anew(setup: Setup) -> None:
    async with described("a", 1) as (announced, worker):
        await setup.admission.admit(announced)
        setup.see(Registered(announced, 0))
        setup.see(Departed("a", 1))
        await setup.admission.admit(announced)
        assert worker.described == 2


async def test_a_channel_is_kept_while_a_worker_has_it(setup: Setup) -> None:
    async with described("a", 1) as (announced, worker):
        channel = setup.channels.get(announced.address)
        setup.channels.keep({announced.address})
        assert setup.channels.get(announced.address) is channel

        setup.channels.keep(set())
        fresh = setup.channels.get(announced.address)
        assert fresh is not channel
        await WorkerStub(fresh).Describe(DescribeRequest(), timeout=5)
        assert worker.described == 1
